"""OAuth of the stand-in: sign-in, authorization page, codes, tokens, userinfo and revocation, as doorkeeper does."""

import base64
import hashlib
import secrets
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import jwt
import pytest

from realm.gitlab.browser import Browser, BrowserError
from realm.gitlab.client import ApplicationHandle, ControlError, UserHandle
from realm.gitlab.local import LocalGitLab
from realm.gitlab.sessions import COOKIE

CALLBACK = "https://bridge.realm.test:8443/link/callback"
PASSWORD = "correct horse"
VERIFIER = secrets.token_urlsafe(32)
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()

Fields = dict[str, str]


@dataclass(frozen=True)
class Site:
    """A stand-in with alice, and a confidential, a public and a trusted application."""

    gitlab: LocalGitLab
    http: httpx2.Client
    alice: UserHandle
    app: ApplicationHandle
    public: ApplicationHandle
    trusted: ApplicationHandle

    def query(self, **changes: str | None) -> Fields:
        """A good authorization request; None leaves a parameter out."""
        good = {
            "client_id": self.app.client_id,
            "redirect_uri": CALLBACK,
            "response_type": "code",
            "scope": "openid",
            "state": "s t&te",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    def url(self, **changes: str | None) -> str:
        """The same as a URL."""
        return f"{self.gitlab.url}/oauth/authorize?{urlencode(self.query(**changes))}"

    def code(self, **changes: str | None) -> str:
        """A code of alice's."""
        return answer_in(self.gitlab.control.authorize(self.url(**changes), "alice"))["code"]

    def exchange(self, **changes: str | None) -> httpx2.Response:
        """A token request; a fresh code unless one is given."""
        good = {
            "grant_type": "authorization_code",
            "redirect_uri": CALLBACK,
            "code_verifier": VERIFIER,
            "client_id": self.app.client_id,
            "client_secret": self.app.secret,
        }
        if "code" not in changes:
            good["code"] = self.code()
        fields = {name: value for name, value in {**good, **changes}.items() if value is not None}
        return self.http.post("/oauth/token", data=fields)

    def token(self, scope: str = "openid") -> dict[str, Any]:
        """A granted token."""
        answer = self.exchange(code=self.code(scope=scope))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def ask(self, path: str, token: str) -> httpx2.Response:
        """GET with a bearer token."""
        return self.http.get(path, headers={"Authorization": f"Bearer {token}"})

    def browser(self) -> Browser:
        """A fresh browser."""
        return Browser(self.gitlab.url, self.gitlab.files.ca)

    def signed_in(self) -> httpx2.Client:
        """An HTTP client with alice's session."""
        context = ssl.create_default_context(cafile=str(self.gitlab.files.ca))
        cookies = self.gitlab.control.sign_in("alice")
        return httpx2.Client(base_url=self.gitlab.url, verify=context, trust_env=False, cookies=cookies)


def answer_in(location: str) -> Fields:
    """What a redirection to the client says."""
    assert location.startswith(f"{CALLBACK}?")
    return dict(parse_qsl(urlsplit(location).query, strict_parsing=True))


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    """One stand-in for this module."""
    with LocalGitLab() as gitlab:
        control = gitlab.control
        context = ssl.create_default_context(cafile=str(gitlab.files.ca))
        alice = control.create_user("alice", id=101, password=PASSWORD, groups_direct=["chem"])
        app = control.register_application([CALLBACK, f"{CALLBACK}2"], scopes=["openid", "email", "read_user", "api"])
        public = control.register_application([CALLBACK], confidential=False)
        trusted = control.register_application([CALLBACK], trusted=True, name="trusted")
        with httpx2.Client(base_url=gitlab.url, verify=context, trust_env=False) as http:
            yield Site(gitlab, http, alice, app, public, trusted)


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    """The same, well-behaved and with alice unblocked after each test."""
    yield running
    running.gitlab.control.behave()
    running.gitlab.control.change_user("alice", state="active")


def test_every_endpoint_that_discovery_names_exists(site: Site) -> None:
    document = site.http.get("/.well-known/openid-configuration").json()
    names = ("authorization", "token", "userinfo", "revocation")
    for name in names:
        url = document[f"{name}_endpoint"]
        assert url.startswith(f"{site.gitlab.url}/oauth/")
        assert site.http.request("GET" if name in ("authorization", "userinfo") else "POST", url).status_code != 404
    assert {"openid", "read_user"} <= set(document["scopes_supported"])
    assert "S256" in document["code_challenge_methods_supported"]


@pytest.mark.parametrize("login", ["alice", "alice@localhost"])
@pytest.mark.parametrize("with_token", [False, True])
def test_the_whole_way_through_the_pages(site: Site, login: str, with_token: bool) -> None:
    with site.browser() as browser:
        location = browser.authorize(site.url(), login, site.alice.token if with_token else PASSWORD)
    answer = answer_in(location)
    assert answer["state"] == "s t&te"
    assert site.exchange(code=answer["code"]).status_code == 200


def test_a_signed_in_person_is_asked_but_not_for_a_password(site: Site) -> None:
    with site.browser() as browser:
        browser.sign_in("alice", PASSWORD)
        assert "code" in answer_in(browser.authorize(site.url(), "nobody", "nothing"))


def test_cancel_is_told_to_the_client(site: Site) -> None:
    with site.browser() as browser:
        answer = answer_in(browser.authorize(site.url(), "alice", PASSWORD, button="Cancel"))
    assert (answer["error"], answer["state"]) == ("access_denied", "s t&te")
    assert "code" not in answer


def test_a_trusted_application_is_not_asked_about(site: Site) -> None:
    with site.browser() as browser:
        browser.sign_in("alice", PASSWORD)
        page = browser.http.get(site.url(client_id=site.trusted.client_id))
        assert page.status_code == 200
        assert "Redirecting" in page.text
        location = browser.authorize(site.url(client_id=site.trusted.client_id), "", "")
    assert answer_in(location).keys() == {"code", "state"}


@pytest.mark.parametrize(("login", "password"), [("alice", "wrong"), ("alice", ""), ("nobody", PASSWORD), ("", "")])
def test_sign_in_needs_the_right_password(site: Site, login: str, password: str) -> None:
    with site.browser() as browser, pytest.raises(BrowserError, match="Invalid login or password"):
        browser.sign_in(login, password)


def test_blocked_people_neither_sign_in_nor_stay_signed_in(site: Site) -> None:
    with site.signed_in() as http:
        assert http.get(site.url()).status_code == 200
        site.gitlab.control.block_user("alice")
        assert http.get(site.url()).headers["location"] == "/users/sign_in"
    with site.browser() as browser, pytest.raises(BrowserError, match="blocked"):
        browser.sign_in("alice", PASSWORD)
    with pytest.raises(ControlError, match="blocked"):
        site.gitlab.control.sign_in("alice")


def test_the_session_changes_its_key_at_sign_in_and_is_kept_from_scripts(site: Site) -> None:
    with site.browser() as browser:
        browser.http.get("/users/sign_in")
        before = browser.http.cookies[COOKIE]
        browser.sign_in("alice", PASSWORD)
        assert browser.http.cookies[COOKIE] != before
    stale = site.http.get(site.url(), headers={"Cookie": f"{COOKIE}={before}"})
    assert stale.headers["location"] == "/users/sign_in"
    cookie = stale.headers["set-cookie"].lower()
    assert {"secure", "httponly", "samesite=lax"} <= set(cookie.split("; "))
    site.http.cookies.clear()


@pytest.mark.parametrize("path", ["/users/sign_in", "/oauth/authorize"])
@pytest.mark.parametrize("token", [None, "", "guessed"])
def test_forms_from_elsewhere_are_rejected(site: Site, path: str, token: str | None) -> None:
    fields = {**site.query(), "user[login]": "alice", "user[password]": PASSWORD}
    if token is not None:
        fields["authenticity_token"] = token
    with site.signed_in() as http:
        answer = http.post(path, data=fields)
    assert answer.status_code == 422
    assert "location" not in answer.headers


BAD_REQUESTS: dict[str, tuple[dict[str, str | None], str, bool]] = {
    "no client": ({"client_id": None}, "Missing required parameter: client_id.", False),
    "unknown client": ({"client_id": "nobody"}, "unknown client", False),
    "no redirect URI": ({"redirect_uri": None}, "redirect uri", False),
    "another redirect URI": ({"redirect_uri": "https://evil.test/"}, "redirect uri", False),
    "longer redirect URI": ({"redirect_uri": f"{CALLBACK}/more"}, "redirect uri", False),
    "redirect URI with a query": ({"redirect_uri": f"{CALLBACK}?x=1"}, "redirect uri", False),
    "no response type": ({"response_type": None}, "Missing required parameter: response_type.", True),
    "implicit": ({"response_type": "token"}, "response type", True),
    "unknown scope": ({"scope": "openid root"}, "scope", True),
    "scope that is not registered": ({"scope": "openid profile"}, "scope", True),
    "unknown challenge method": ({"code_challenge_method": "S512"}, "challenge method", True),
    "no challenge method": ({"code_challenge_method": None}, "challenge method", True),
    "short challenge": ({"code_challenge": "abc"}, "malformed", True),
}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_bad_requests_are_shown_and_only_told_to_a_known_client(site: Site, kind: str) -> None:
    changes, words, redirectable = BAD_REQUESTS[kind]
    with site.signed_in() as http:
        shown = http.get(site.url(**changes))
        assert words in shown.text
        assert "location" not in shown.headers
        good = http.get(site.url())
        token = good.text.partition('name="authenticity_token" value="')[2].partition('"')[0]
        sent = http.post("/oauth/authorize", data={**site.query(**changes), "authenticity_token": token})
    if redirectable:
        answer = answer_in(sent.headers["location"])
        assert words in answer["error_description"]
        assert answer["state"] == "s t&te"
    else:
        assert "location" not in sent.headers
        assert sent.json()["error"] in ("invalid_request", "invalid_client", "invalid_redirect_uri")


@pytest.mark.parametrize("changes", [{"code_challenge": None}, {"code_challenge_method": "plain"}], ids=str)
def test_public_clients_must_use_pkce_with_s256(site: Site, changes: dict[str, str | None]) -> None:
    with pytest.raises(ControlError, match="code_challenge"):
        site.code(client_id=site.public.client_id, **changes)
    assert site.code(**changes)


def test_a_token_answer_has_rfc_6749s_members_and_is_not_stored(site: Site) -> None:
    answer = site.exchange()
    body = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert (body["token_type"], body["expires_in"], body["scope"]) == ("Bearer", 7200, "openid")
    assert len(body["access_token"]) == len(body["refresh_token"]) == 64
    assert isinstance(body["created_at"], int)


def test_the_id_token_is_for_the_client_and_signed_by_a_published_key(site: Site) -> None:
    token = site.exchange(code=site.code(nonce="n0nce")).json()["id_token"]
    keys = jwt.PyJWKSet.from_dict(site.http.get("/oauth/discovery/keys").json())
    claims = jwt.decode(
        token,
        keys[jwt.get_unverified_header(token)["kid"]],
        algorithms=["RS256"],
        audience=site.app.client_id,
        issuer=site.gitlab.url,
    )
    assert (claims["sub"], claims["nonce"], claims["exp"] - claims["iat"]) == ("101", "n0nce", 120)
    assert "id_token" not in site.token("read_user")


BAD_EXCHANGES: dict[str, tuple[dict[str, str | None], int, str]] = {
    "no grant type": ({"grant_type": None}, 400, "invalid_request"),
    "password": ({"grant_type": "password"}, 400, "unsupported_grant_type"),
    "no code": ({"code": None}, 400, "invalid_request"),
    "unknown code": ({"code": "0" * 64}, 400, "invalid_grant"),
    "no redirect URI": ({"redirect_uri": None}, 400, "invalid_request"),
    "another redirect URI": ({"redirect_uri": f"{CALLBACK}2"}, 400, "invalid_grant"),
    "no verifier": ({"code_verifier": None}, 400, "invalid_request"),
    "another verifier": ({"code_verifier": VERIFIER + "x"}, 400, "invalid_grant"),
    "the challenge as verifier": ({"code_verifier": CHALLENGE}, 400, "invalid_grant"),
    "no secret": ({"client_secret": None}, 401, "invalid_client"),
    "wrong secret": ({"client_secret": "wrong"}, 401, "invalid_client"),
    "unknown client": ({"client_id": "nobody"}, 401, "invalid_client"),
    "no client": ({"client_id": None, "client_secret": None}, 401, "invalid_client"),
}


@pytest.mark.parametrize("kind", BAD_EXCHANGES)
def test_bad_exchanges_are_refused_as_rfc_6749_section_5_2_says(site: Site, kind: str) -> None:
    changes, status, name = BAD_EXCHANGES[kind]
    answer = site.exchange(**changes)
    assert (answer.status_code, answer.json()["error"]) == (status, name)
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_another_clients_code_is_refused(site: Site) -> None:
    code = site.code(client_id=site.public.client_id)
    assert site.exchange(code=code).json()["error"] == "invalid_grant"
    mine = site.exchange(code=code, client_id=site.public.client_id, client_secret=None)
    assert mine.status_code == 200


def test_a_code_is_for_one_use_and_ten_minutes(site: Site) -> None:
    code = site.code()
    assert site.exchange(code=code).status_code == 200
    assert site.exchange(code=code).json()["error"] == "invalid_grant"
    young, old = site.code(), site.code()
    site.gitlab.control.age_oauth(590)
    assert site.exchange(code=young).status_code == 200
    site.gitlab.control.age_oauth(10)
    assert site.exchange(code=old).json()["error"] == "invalid_grant"


def test_a_code_without_challenge_takes_no_verifier(site: Site) -> None:
    code = site.code(code_challenge=None, code_challenge_method=None)
    assert site.exchange(code=code).json()["error"] == "invalid_grant"
    assert site.exchange(code=code, code_verifier=None).status_code == 200


def test_plain_challenges_of_confidential_clients_work(site: Site) -> None:
    code = site.code(code_challenge=VERIFIER, code_challenge_method="plain")
    assert site.exchange(code=code, code_verifier=VERIFIER + "x").json()["error"] == "invalid_grant"
    assert site.exchange(code=code).status_code == 200


def test_a_client_may_show_itself_by_http_basic(site: Site) -> None:
    fields = {"grant_type": "authorization_code", "code": site.code(), "redirect_uri": CALLBACK}
    auth = httpx2.BasicAuth(site.app.client_id, site.app.secret)
    answer = site.http.post("/oauth/token", data={**fields, "code_verifier": VERIFIER}, auth=auth)
    assert answer.status_code == 200


def test_userinfo_has_gitlabs_claims(site: Site) -> None:
    token = site.token()["access_token"]
    expected = {
        "sub": "101",
        "name": "Alice",
        "nickname": "alice",
        "preferred_username": "alice",
        "profile": f"{site.gitlab.url}/alice",
        "groups": ["chem"],
    }
    assert site.ask("/oauth/userinfo", token).json() == expected
    posted = site.http.post("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"})
    assert posted.json() == expected
    with_email = site.ask("/oauth/userinfo", site.token("openid email")["access_token"]).json()
    assert with_email == expected | {"email": "alice@localhost", "email_verified": True}


def test_userinfo_is_for_live_tokens_of_active_people(site: Site) -> None:
    token = site.token()["access_token"]
    assert site.ask("/oauth/userinfo", token).status_code == 200
    site.gitlab.control.block_user("alice")
    blocked = site.ask("/oauth/userinfo", token)
    assert (blocked.status_code, blocked.json()["error"]) == (401, "invalid_token")
    site.gitlab.control.change_user("alice", state="active")
    for wrong in ("x", "0" * 64, site.alice.token):
        answer = site.ask("/oauth/userinfo", wrong)
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_token")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    site.gitlab.control.age_oauth(7200)
    assert site.ask("/oauth/userinfo", token).status_code == 401


def test_scopes_bound_what_a_token_opens(site: Site) -> None:
    opened = {scope: site.token(scope)["access_token"] for scope in ("openid", "read_user", "api")}
    seen = {
        scope: (site.ask("/oauth/userinfo", token).status_code, site.ask("/api/v4/user", token).status_code)
        for scope, token in opened.items()
    }
    assert seen == {"openid": (200, 403), "read_user": (403, 200), "api": (403, 200)}
    path = "/api/v4/projects/999"
    assert [site.ask(path, opened[scope]).status_code for scope in ("openid", "read_user", "api")] == [403, 403, 404]


def test_revocation_ends_a_token_and_its_refresh_token(site: Site) -> None:
    made = site.token()
    known = {"client_id": site.app.client_id, "client_secret": site.app.secret}
    assert site.http.post("/oauth/revoke", data={"token": made["access_token"], **known}).json() == {}
    assert site.ask("/oauth/userinfo", made["access_token"]).status_code == 401
    refresh = {"grant_type": "refresh_token", "refresh_token": made["refresh_token"], **known}
    assert site.http.post("/oauth/token", data=refresh).json()["error"] == "invalid_grant"


def test_revocation_is_for_the_tokens_own_client(site: Site) -> None:
    token = site.token()["access_token"]
    foreign = {"client_id": site.trusted.client_id, "client_secret": site.trusted.secret}
    answer = site.http.post("/oauth/revoke", data={"token": token, **foreign})
    assert (answer.status_code, answer.json()["error"]) == (403, "unauthorized_client")
    nobody = site.http.post("/oauth/revoke", data={"token": token})
    assert (nobody.status_code, nobody.json()["error"]) == (401, "invalid_client")
    unknown = site.http.post("/oauth/revoke", data={"token": "0" * 64, **foreign})
    assert (unknown.status_code, unknown.json()) == (200, {})
    assert site.ask("/oauth/userinfo", token).status_code == 200


def test_a_refresh_token_is_used_up(site: Site) -> None:
    made = site.token()
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": made["refresh_token"],
        "client_id": site.app.client_id,
        "client_secret": site.app.secret,
    }
    fresh = site.http.post("/oauth/token", data=fields).json()
    assert site.ask("/oauth/userinfo", fresh["access_token"]).status_code == 200
    assert site.ask("/oauth/userinfo", made["access_token"]).status_code == 401
    assert site.http.post("/oauth/token", data=fields).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("place", ["authorize", "token", "userinfo", "revoke"])
def test_every_endpoint_can_be_made_to_misbehave(site: Site, place: str) -> None:
    method = "GET" if place in ("authorize", "userinfo") else "POST"
    site.gitlab.control.misbehave(f"oauth_{place}_verbatim", status=418, body="<{answer}>")
    answer = site.http.request(method, f"/oauth/{place}")
    assert answer.status_code == 418
    assert (answer.text[0], answer.text[-1]) == ("<", ">")
    site.gitlab.control.misbehave(f"oauth_{place}_503")
    assert site.http.request(method, f"/oauth/{place}").status_code == 503
    assert site.http.request(method, f"/oauth/{place}").status_code != 503


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_id": "taken"}, "taken"),
        ({"scopes": ["root"]}, "unknown scopes"),
        ({"confidential": False, "secret": "s"}, "no secret"),
    ],
)
def test_the_control_registers_no_nonsense(site: Site, options: dict[str, Any], words: str) -> None:
    if options.get("client_id") == "taken":
        assert site.gitlab.control.register_application([CALLBACK], client_id="taken").client_id == "taken"
    with pytest.raises(ControlError, match=words):
        site.gitlab.control.register_application([CALLBACK], **options)


def test_secrets_stay_out_of_the_request_log(site: Site) -> None:
    site.gitlab.control.forget_requests()
    made = site.token()
    text = str(site.gitlab.control.requests())
    assert "/oauth/token" in text
    assert site.app.secret not in text
    assert made["access_token"] not in text
    assert site.app.secret not in repr(site.app)
