"""What web takes for a credential, and from where: headers, the console's cookie, and never two at once (T39, T41)."""

from __future__ import annotations

from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import httpx2
import jwt
import pytest
from fastapi import FastAPI

from bridge.api.callers import Person, Presenter
from bridge.api.cookies import COOKIE, IDLE_SECONDS, forgotten, kept
from bridge.people.sessions import IDLE, RENEW_AFTER
from tests.api.people_web import CLIENT, URL, Site, anonymous, refused, ticket
from tests.fakes import REALM
from tests.unit.core.bench import KID, PROVIDER

KILL = {"scope": "all", "reason": "stop"}
OWN = CLIENT | {"Origin": URL}


def session_of(web_site: Site, who: str) -> str:
    """A session's token, as the broker gives it to web."""
    result, _ = web_site.client.ask_for("session_open", authorization=f"Negotiate {who}@{REALM}")
    web_site.client.asked.clear()
    return str(result["session"]["token"])


def secret_of(web_site: Site, who: str, *scopes: str) -> str:
    """An API token's secret."""
    asked = {"authorization": f"Negotiate {who}@{REALM}", "scopes": list(scopes), "days": 1, "note": "n"}
    result, _ = web_site.client.ask_for("api_token_create", **asked)
    web_site.client.asked.clear()
    return str(result["secret"])


def get(web_site: Site, path: str = "/v1/me", **headers: Any) -> httpx2.Response:
    return web_site.http.get(path, headers=headers)


def throw(web_site: Site, token: str, headers: dict[str, str], **changes: str | None) -> httpx2.Response:
    """Change something with the cookie; a header that is None is left out."""
    given = {**headers, "Cookie": f"{COOKIE}={token}", **changes}
    return web_site.http.post("/v1/kills", json=KILL, headers={k: v for k, v in given.items() if v is not None})


def test_the_cookie_is_the_session(web_site: Site) -> None:
    me = get(web_site, Cookie=f"theme=dark; {COOKIE}={session_of(web_site, 'oli')}; a=b")
    assert me.status_code == 200
    assert {"principal": f"oli@{REALM}", "method": "session", "person": True}.items() <= me.json().items()
    assert "www-authenticate" not in me.headers
    assert "set-cookie" not in me.headers
    assert throw(web_site, session_of(web_site, "oli"), OWN).status_code == 201
    fetched = OWN | {"Sec-Fetch-Site": "same-origin"}
    assert throw(web_site, session_of(web_site, "oli"), fetched).status_code == 201


def test_a_program_comes_with_its_secret_and_a_person_with_a_sign_in(web_site: Site) -> None:
    secret = secret_of(web_site, "oli", "operator")
    me = get(web_site, Authorization=f"Bearer {secret}").json()
    assert me == {
        "principal": f"oli@{REALM}",
        "account": None,
        "roles": ["operator"],
        "method": "api_token",
        "person": False,
    }
    thrown = web_site.http.post("/v1/kills", json=KILL, headers=CLIENT | {"Authorization": f"Bearer {secret}"})
    assert thrown.status_code == 201
    assert thrown.json()["switch"]["actor"] == f"oli@{REALM}"
    now = int(web_site.broker.clock().timestamp())
    claims = {"iss": PROVIDER.issuer, "aud": PROVIDER.audience, "sub": "1", "iat": now, "exp": now + 60}
    claims |= {"auth_time": now, "preferred_username": "vic"}
    token = jwt.encode(claims, web_site.broker.key, algorithm="RS256", headers={"kid": KID})
    assert get(web_site, Authorization=f"Bearer {token}").json()["method"] == "oidc"


@pytest.mark.threat("T41")
@pytest.mark.parametrize(
    "changes",
    [
        {"Origin": None},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://evil.test"},
        {"Origin": f"{URL}.evil.test"},
        {"Origin": URL.replace("https", "http")},
        {"Origin": URL.partition(":8443")[0]},
        {"Origin": f"{URL}/"},
        {"Origin": "https://other.realm.test:8443"},
        {"Origin": None, "Referer": f"{URL}/console"},
        {"X-CI-Bridge-Client": None},
        {"X-CI-Bridge-Client": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
    ids=str,
)
def test_another_sites_page_changes_nothing_with_somebodys_cookie(
    web_site: Site, changes: dict[str, str | None]
) -> None:
    refused(throw(web_site, session_of(web_site, "oli"), OWN, **changes), 403, "request.cross_site")
    assert web_site.client.asked == []


@pytest.mark.threat("T41")
def test_without_an_address_of_its_own_web_takes_no_cookie_for_a_change(web_site: Site) -> None:
    token, app = session_of(web_site, "oli"), web_site.http.app
    assert isinstance(app, FastAPI)
    app.state.origin = None
    refused(throw(web_site, token, OWN), 403, "request.cross_site")
    assert web_site.client.asked == []


@pytest.mark.threat("T39")
@pytest.mark.parametrize("path", ["/v1/me", "/v1/links", "/v1/kills"])
def test_two_credentials_are_none(web_site: Site, path: str) -> None:
    token, secret = session_of(web_site, "vic"), secret_of(web_site, "vic", "viewer")
    cookie = f"{COOKIE}={token}"
    both: list[list[tuple[str, str]]] = [
        [("Cookie", cookie), ("Authorization", f"Negotiate oli@{REALM}")],
        [("Cookie", cookie), ("Authorization", f"Bearer {secret}")],
        [("Cookie", cookie), ("Authorization", "")],
        [("Cookie", f"{COOKIE}="), ("Authorization", f"Bearer {secret}")],
        [("Cookie", f"{cookie}; {cookie}")],
        [("Cookie", f"{cookie}; {COOKIE}=x")],
        [("Cookie", cookie), ("Cookie", cookie)],
        [("Authorization", f"Bearer {secret}"), ("Authorization", f"Bearer {secret}")],
        [("Authorization", f"Bearer {secret}"), ("Authorization", f"Negotiate oli@{REALM}")],
    ]
    for headers in both:
        refused(web_site.http.get(path, headers=headers), 422, "caller.ambiguous")
    assert web_site.client.asked == []


@pytest.mark.threat("T41")
@pytest.mark.parametrize(
    "name",
    ["ci-bridge", "__host-ci-bridge", "__HOST-CI-BRIDGE", "__Secure-ci-bridge", f"{COOKIE}2", f"x{COOKIE}"],
)
def test_a_cookie_by_any_other_name_is_none(web_site: Site, name: str) -> None:
    """A subdomain, or somebody without TLS, can set those; never one that browsers keep to this host."""
    token = session_of(web_site, "oli")
    refused(get(web_site, Cookie=f"{name}={token}"), 401, "negotiate.required")
    assert web_site.client.asked == []


@pytest.mark.threat("T40")
def test_a_session_counts_only_as_a_cookie(web_site: Site) -> None:
    token = session_of(web_site, "oli")
    for shown in (f"Session {token}", f"session {token}", f"SESSION {token}"):
        refused(get(web_site, Authorization=shown), 401, "negotiate.required")
    assert web_site.client.asked == []
    refused(get(web_site, Authorization=f"Bearer {token}"), 401, "caller.unknown")


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "value", ["", "x", "a.b", "." + "A" * 43, "A." + "A" * 42, "A." + "A" * 44, '"A.' + "A" * 43 + '"', "A" * 5000]
)
def test_a_cookie_that_holds_no_token_is_taken_away(web_site: Site, value: str) -> None:
    answer = get(web_site, Cookie=f"{COOKIE}={value}")
    refused(answer, 401, "caller.session")
    assert answer.headers["set-cookie"] == forgotten()
    assert web_site.client.asked == []


@pytest.mark.threat("T40")
def test_a_secret_in_the_cookie_and_an_old_session_are_taken_away(web_site: Site) -> None:
    old = session_of(web_site, "oli")
    web_site.broker.clock.shift = IDLE + timedelta(seconds=5)
    for value in (old, f"A.{'A' * 43}", secret_of(web_site, "oli", "operator")):
        answer = get(web_site, Cookie=f"{COOKIE}={value}")
        refused(answer, 401, "caller.session")
        assert answer.headers["set-cookie"] == forgotten()
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.threat("T50")
def test_every_secret_that_does_not_count_gets_the_same_bytes(web_site: Site) -> None:
    gone = secret_of(web_site, "vic", "viewer")
    asked = {"authorization": f"Negotiate vic@{REALM}"}
    listed, _ = web_site.client.ask_for("api_token_list", **asked)
    web_site.client.ask_for("api_token_revoke", token_id=listed["tokens"][0]["token_id"], **asked)
    shown = [gone, f"cib_{'x' * 43}", gone[:-1], gone.upper(), f"CIB_{gone[4:]}", "x", "a.b.c"]
    answers = [get(web_site, Authorization=f"Bearer {one}") for one in shown]
    assert {(one.status_code, anonymous(one.text)) for one in answers} == {(401, anonymous(answers[0].text))}
    assert {tuple(sorted(one.headers.items())) for one in answers} == {tuple(sorted(answers[0].headers.items()))}
    refused(answers[0], 401, "caller.unknown")


def test_a_session_that_is_used_goes_on_in_a_new_cookie(web_site: Site) -> None:
    token = session_of(web_site, "oli")
    web_site.broker.clock.shift = RENEW_AFTER + timedelta(seconds=5)
    said = get(web_site, Cookie=f"{COOKIE}={token}").headers["set-cookie"]
    (morsel,) = SimpleCookie(said).values()
    assert (morsel.key, morsel["path"], morsel["max-age"]) == (COOKIE, "/", str(IDLE_SECONDS))
    assert (morsel["secure"], morsel["httponly"], morsel["samesite"], morsel["domain"]) == (True, True, "Strict", "")
    assert morsel.value != token
    assert kept(morsel.value) == said
    web_site.broker.clock.shift = RENEW_AFTER + IDLE - timedelta(seconds=5)
    assert get(web_site, Cookie=f"{COOKIE}={morsel.value}").json()["principal"] == f"oli@{REALM}"
    refused(get(web_site, Cookie=f"{COOKIE}={token}"), 401, "caller.session")
    assert timedelta(seconds=IDLE_SECONDS) == IDLE


@pytest.mark.parametrize("token", ["", "a", "a.b; Domain=evil.test", "A.\r\nX: y", "A." + "A" * 43 + ";x"])
def test_a_cookie_is_made_of_a_token_only(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        kept(token)


@pytest.mark.threat("T41")
def test_pages_that_ask_for_a_ticket_look_at_no_cookie(web_site: Site) -> None:
    cookie = {"Cookie": f"{COOKIE}={session_of(web_site, 'oli')}"}
    refused(web_site.http.get("/link", headers=cookie), 401, "negotiate.required")
    page = web_site.http.get("/link", headers=cookie | ticket("alice"))
    assert page.status_code == 200
    assert "set-cookie" not in page.headers


@pytest.mark.threat("T41")
def test_beginning_a_session_makes_a_new_one_whatever_cookie_was_planted(web_site: Site) -> None:
    async def begin(person: Presenter) -> dict[str, Any]:
        return await person.begin_session()

    async def leave(person: Person) -> None:
        person.forget_session()

    app = web_site.http.app
    assert isinstance(app, FastAPI)
    app.add_api_route("/tried/begin", begin, methods=["POST"])
    app.add_api_route("/tried/leave", leave, methods=["POST"])
    planted = session_of(web_site, "vic")
    begun = web_site.http.post("/tried/begin", headers=ticket("oli") | {"Cookie": f"{COOKIE}={planted}"})
    assert begun.json().keys() == {"session_id", "principal", "ends_at"}
    (morsel,) = SimpleCookie(begun.headers["set-cookie"]).values()
    assert morsel.value not in (planted, begun.text)
    assert get(web_site, Cookie=f"{COOKIE}={morsel.value}").json()["principal"] == f"oli@{REALM}"
    again = web_site.http.post("/tried/begin", headers={"Cookie": f"{COOKIE}={morsel.value}"})
    refused(again, 401, "negotiate.required")
    program = {"Authorization": f"Bearer {secret_of(web_site, 'oli', 'operator')}"}
    refused(web_site.http.post("/tried/begin", headers=program), 403, "caller.no_new_session")
    left = web_site.http.post("/tried/leave", headers=OWN | {"Cookie": f"{COOKIE}={morsel.value}"})
    assert left.headers["set-cookie"] == forgotten()


@pytest.mark.threat("T46")
def test_no_credential_is_in_an_answer_or_in_webs_log(web_site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    token, secret = session_of(web_site, "oli"), secret_of(web_site, "oli", "operator")
    capfd.readouterr()
    answers = [
        get(web_site, Cookie=f"{COOKIE}={token}"),
        throw(web_site, token, OWN),
        throw(web_site, token, OWN, Origin="https://evil.test"),
        get(web_site, Cookie=f"{COOKIE}={token}; {COOKIE}={token}"),
        get(web_site, Authorization=f"Bearer {secret}"),
        get(web_site, Authorization=f"Bearer {secret}A"),
        get(web_site, Authorization=f"Bearer {token}"),
    ]
    said = "".join([*capfd.readouterr(), *(f"{one.text}{one.headers}" for one in answers)])
    for canary in (token, token.partition(".")[2], secret, secret[4:]):
        assert canary not in said
