"""Linking a GitLab person: the OAuth client against the realm's GitLab, and against servers that mean it no good."""

import base64
import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from https_server import HttpsServer, https_server

from bridge.errors import BridgeError, Outage, TokenRefused
from bridge.oidc.oauth import MAX_ANSWER_BYTES, GitLabPerson, OAuthClient
from realm.gitlab.browser import Browser
from realm.gitlab.client import GitLabControl
from realm.gitlab.local import LocalGitLab

CALLBACK = "https://bridge.realm.test:8443/link/callback"
STATE = "state-0123456789abcdef"
CLIENT, SECRET = "ci-bridge-link", "gloas-canary-5f1d"
ALICE = GitLabPerson(101, "alice", "Alice")


class Front:
    """A GitLab with two people, and the bridge registered as a confidential application of it."""

    def __init__(self, gitlab: LocalGitLab) -> None:
        self.url, self.ca = gitlab.url, gitlab.files.ca
        self.control: GitLabControl = gitlab.control
        self.control.create_user("alice", id=101, password="alice's password")
        self.control.create_user("mallory", id=103)
        self.control.register_application([CALLBACK], client_id=CLIENT, secret=SECRET)
        self.client = self.application(CLIENT, SECRET)

    def application(self, client_id: str, secret: str | None, callback: str = CALLBACK) -> OAuthClient:
        """A client that says it is this application."""
        return OAuthClient(self.url, client_id, secret, callback, self.ca)

    def code(self, verifier: str, *, person: str = "alice", client: OAuthClient | None = None) -> str:
        """The code that comes back when this person authorizes."""
        url = (client or self.client).authorization_url(STATE, OAuthClient.challenge(verifier))
        answer = dict(parse_qsl(urlsplit(self.control.authorize(url, person)).query))
        assert answer["state"] == STATE
        return answer["code"]

    def live_tokens(self) -> int:
        """How many tokens of the bridge's application are good for something."""
        return self.control.live_oauth_tokens(CLIENT)


@pytest.fixture(scope="module")
def gitlab() -> Iterator[Front]:
    """One stand-in for this module."""
    with LocalGitLab() as running:
        yield Front(running)


@pytest.fixture
def front(gitlab: Front) -> Iterator[Front]:
    """The stand-in, well-behaved and with nobody blocked, before and after; no token outlives a test."""
    yield gitlab
    gitlab.control.behave()
    gitlab.control.change_user("alice", state="active")
    gitlab.control.age_oauth(7200)


@pytest.fixture
def verifier() -> str:
    """A fresh verifier."""
    return secrets.token_urlsafe(32)


def refusal(client: OAuthClient, code: str, verifier: str) -> BridgeError:
    """Why the client learns of nobody."""
    with pytest.raises(BridgeError) as caught:
        client.person(code, verifier)
    return caught.value


def test_the_person_who_authorized_is_known_by_number(front: Front, verifier: str) -> None:
    assert front.client.person(front.code(verifier), verifier) == ALICE


def test_the_whole_way_through_the_pages(front: Front, verifier: str) -> None:
    url = front.client.authorization_url(STATE, OAuthClient.challenge(verifier))
    with Browser(front.url, front.ca) as browser:
        location = browser.authorize(url, "alice", "alice's password")
    assert location.startswith(f"{CALLBACK}?")
    answer = dict(parse_qsl(urlsplit(location).query))
    assert answer["state"] == STATE
    assert front.client.person(answer["code"], verifier) == ALICE


def test_a_public_application_needs_no_secret(front: Front, verifier: str) -> None:
    made = front.control.register_application([CALLBACK], confidential=False)
    client = front.application(made.client_id, None)
    assert client.person(front.code(verifier, client=client), verifier) == ALICE
    assert front.control.live_oauth_tokens(made.client_id) == 0


def test_authorization_url_says_what_rfc_6749_and_7636_ask_for(front: Front) -> None:
    url = urlsplit(front.client.authorization_url(STATE, "A" * 43))
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{front.url}/oauth/authorize"
    assert parse_qs(url.query, strict_parsing=True) == {
        "client_id": [CLIENT],
        "redirect_uri": [CALLBACK],
        "response_type": ["code"],
        "scope": ["openid"],
        "state": [STATE],
        "code_challenge": ["A" * 43],
        "code_challenge_method": ["S256"],
    }


def test_challenge_is_that_of_rfc_7636_appendix_b() -> None:
    expected = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert OAuthClient.challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == expected
    digest = hashlib.sha256(b"x" * 128).digest()
    assert OAuthClient.challenge("x" * 128) == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.mark.threat("T19")
@pytest.mark.parametrize("bad", ["", "x" * 42, "x" * 129, "x" * 42 + "+", "x" * 42 + "\n", "ä" * 43])
def test_no_challenge_is_made_of_a_malformed_verifier(front: Front, bad: str) -> None:
    with pytest.raises(ValueError, match="verifier"):
        OAuthClient.challenge(bad)
    before = front.control.requests()
    assert refusal(front.client, "0" * 64, bad).code == "oauth.refused"
    assert front.control.requests() == before


@pytest.mark.parametrize(
    ("state", "challenge"),
    [("short", "A" * 43), (STATE, "A" * 42), (STATE, "A" * 43 + "\n"), (STATE + "&x=", "A" * 43), (STATE, "")],
)
def test_no_url_is_made_without_state_and_challenge(front: Front, state: str, challenge: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        front.client.authorization_url(state, challenge)


@pytest.mark.threat("T19")
def test_a_code_does_not_work_with_another_verifier(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    assert refusal(front.client, code, secrets.token_urlsafe(32)).code == "oauth.refused"
    assert front.live_tokens() == 0


@pytest.mark.threat("T7")
def test_a_code_does_not_work_twice(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    assert front.client.person(code, verifier) == ALICE
    error = refusal(front.client, code, verifier)
    assert (type(error), error.code) == (TokenRefused, "oauth.refused")


@pytest.mark.threat("T7")
def test_of_many_presenters_of_one_code_only_one_learns_the_person(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    start = threading.Barrier(6)

    def present(_: int) -> object:
        start.wait(10)
        try:
            return front.client.person(code, verifier)
        except TokenRefused as error:
            return error.code

    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(present, range(6)))
    assert sorted(map(str, said)) == sorted(map(str, [ALICE, *["oauth.refused"] * 5]))


@pytest.mark.threat("T8")
def test_an_expired_code_does_not_work(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    front.control.age_oauth(600)
    assert refusal(front.client, code, verifier).code == "oauth.refused"


@pytest.mark.threat("T19")
def test_another_applications_code_does_not_work(front: Front, verifier: str) -> None:
    other = front.control.register_application([CALLBACK], name="other")
    foreign = front.application(other.client_id, other.secret)
    code = front.code(verifier, client=foreign)
    assert refusal(front.client, code, verifier).code == "oauth.refused"
    assert foreign.person(code, verifier) == ALICE


@pytest.mark.threat("T19")
def test_a_code_for_another_redirect_uri_does_not_work(front: Front, verifier: str) -> None:
    elsewhere = "https://bridge.realm.test:8443/other"
    made = front.control.register_application([CALLBACK, elsewhere], name="two places")
    code = front.code(verifier, client=front.application(made.client_id, made.secret, elsewhere))
    assert refusal(front.application(made.client_id, made.secret), code, verifier).code == "oauth.refused"


@pytest.mark.parametrize("code", ["", "x" * 513, "a b", "a\n", "ä", "\x00"])
def test_malformed_codes_are_refused_without_asking(front: Front, verifier: str, code: str) -> None:
    front.control.forget_requests()
    assert refusal(front.client, code, verifier).code == "oauth.refused"
    assert front.control.requests() == []


@pytest.mark.threat("T10")
def test_a_blocked_person_is_refused_and_their_token_does_not_stay(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    front.control.block_user("alice")
    error = refusal(front.client, code, verifier)
    assert (type(error), error.code) == (TokenRefused, "oauth.refused")
    assert front.live_tokens() == 0


@pytest.mark.parametrize("known", ["wrong secret", "no secret", "unknown client"])
def test_a_wrong_registration_is_told_from_a_wrong_code(front: Front, verifier: str, known: str) -> None:
    credentials = {"wrong secret": (CLIENT, "wrong"), "no secret": (CLIENT, None), "unknown client": ("nobody", SECRET)}
    error = refusal(front.application(*credentials[known]), front.code(verifier), verifier)
    assert (type(error), error.code) == (Outage, "oauth.client_refused")


ILL = [
    ("500", "oauth.unreachable"),
    ("503", "oauth.unreachable"),
    ("drop", "oauth.unreachable"),
    ("lost", "oauth.unreachable"),
    ("redirect", "oauth.unreachable"),
    ("garbage", "oauth.malformed"),
    ("oversize", "oauth.malformed"),
]


@pytest.mark.threat("T4")
@pytest.mark.threat("T38")
@pytest.mark.parametrize(("action", "expected"), ILL)
@pytest.mark.parametrize("place", ["token", "userinfo"])
def test_an_ill_gitlab_is_an_outage_and_names_nobody(
    front: Front, verifier: str, place: str, action: str, expected: str
) -> None:
    code = front.code(verifier)
    front.control.misbehave(f"oauth_{place}_{action}", target=f"{front.url}/oauth/userinfo")
    error = refusal(front.client, code, verifier)
    assert (type(error), error.code) == (Outage, expected)
    if place == "userinfo":
        assert front.live_tokens() == 0


@pytest.mark.threat("T38")
def test_a_slow_gitlab_is_an_outage(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    front.control.misbehave("oauth_token_slow", seconds=4)
    assert refusal(front.client, code, verifier).code == "oauth.unreachable"


@pytest.mark.parametrize("action", ["500", "drop", "garbage", "oversize", "redirect"])
def test_a_failing_revocation_does_not_change_the_answer(front: Front, verifier: str, action: str) -> None:
    front.control.misbehave(f"oauth_revoke_{action}")
    assert front.client.person(front.code(verifier), verifier) == ALICE


def test_the_token_is_given_back(front: Front, verifier: str) -> None:
    front.control.forget_requests()
    code = front.code(verifier)
    front.client.person(code, verifier)
    asked = [(request["path"], request["status"]) for request in front.control.requests()]
    assert asked == [("/oauth/token", 200), ("/oauth/userinfo", 200), ("/oauth/revoke", 200)]
    assert front.live_tokens() == 0


SUBJECTS: dict[str, Any] = {
    "number": 101,
    "float": 101.0,
    "leading zero": "0101",
    "zero": "0",
    "negative": "-101",
    "plus": "+101",
    "space": " 101",
    "line end": "101\n",
    "underscore": "1_01",
    "Arabic digits": "\u0661\u0660\u0661",
    "fraction": "101.0",
    "hexadecimal": "0x65",
    "empty": "",
    "beyond 2**53": "1" * 17,
    "list": ["101"],
    "object": {"id": "101"},
    "true": True,
}
LIES: dict[str, dict[str, Any]] = {
    **{f"sub: {name}": {"sub": value} for name, value in SUBJECTS.items()},
    "no sub": {"sub": None},
    "no nickname": {"nickname": None},
    "nickname of another type": {"nickname": 7},
    "empty nickname": {"nickname": ""},
    "nickname with an escape": {"nickname": "alice\x1b[2J"},
    "no name": {"name": None},
    "name with a line end": {"name": "Alice\nroot"},
    "name that turns the writing": {"name": "Alice\u202eecila"},
    "long name": {"name": "A" * 1025},
}


@pytest.mark.threat("T17")
@pytest.mark.parametrize("lie", LIES)
def test_a_malformed_person_is_nobody(front: Front, verifier: str, lie: str) -> None:
    code = front.code(verifier)
    front.control.misbehave("oauth_userinfo_lies", changes=LIES[lie])
    error = refusal(front.client, code, verifier)
    assert (type(error), error.code) == (Outage, "oauth.malformed")
    assert front.live_tokens() == 0


VERBATIM = {
    "duplicate sub": '{"sub": "103", "sub": "101", "nickname": "alice", "name": "Alice"}',
    "duplicate by an escape": '{"sub": "103", "s\\u0075b": "101", "nickname": "alice", "name": "Alice"}',
    "list": '[{"sub": "101", "nickname": "alice", "name": "Alice"}]',
    "byte order mark": '\ufeff{"sub": "101", "nickname": "alice", "name": "Alice"}',
    "two documents": '{"sub": "101", "nickname": "alice", "name": "Alice"} {}',
    "lone surrogate": '{"sub": "101", "nickname": "alice", "name": "\\ud800"}',
    "empty": "",
    "null": "null",
}


@pytest.mark.threat("T3")
@pytest.mark.parametrize("body", VERBATIM)
def test_userinfo_that_can_be_read_in_two_ways_is_nobody(front: Front, verifier: str, body: str) -> None:
    code = front.code(verifier)
    front.control.misbehave("oauth_userinfo_verbatim", body=VERBATIM[body])
    assert refusal(front.client, code, verifier).code == "oauth.malformed"
    assert front.live_tokens() == 0


GRANTS: dict[str, dict[str, Any]] = {
    "no token": {"access_token": None},
    "token of another type": {"access_token": 7},
    "empty token": {"access_token": ""},
    "token with a line end": {"access_token": "a\r\nX-Sudo: root"},
    "token with a space": {"access_token": "a b"},
    "MAC token": {"token_type": "mac"},
    "no token type": {"token_type": None},
    "token type of another type": {"token_type": ["Bearer"]},
    "more scope than asked for": {"scope": "openid api"},
    "other scope": {"scope": "read_user"},
    "scope of another type": {"scope": ["openid"]},
}


@pytest.mark.threat("T19")
@pytest.mark.parametrize("lie", GRANTS)
def test_a_malformed_grant_is_not_used(front: Front, verifier: str, lie: str) -> None:
    code = front.code(verifier)
    front.control.forget_requests()
    front.control.misbehave("oauth_token_lies", changes=GRANTS[lie])
    assert refusal(front.client, code, verifier).code == "oauth.malformed"
    assert "/oauth/userinfo" not in [request["path"] for request in front.control.requests()]
    if "access_token" not in GRANTS[lie]:
        assert front.live_tokens() == 0


def test_a_duplicate_member_in_the_grant_is_malformed(front: Front, verifier: str) -> None:
    code = front.code(verifier)
    front.control.misbehave("oauth_token_verbatim", body='{"access_token": "a", "access_token": "b"}')
    assert refusal(front.client, code, verifier).code == "oauth.malformed"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, '{"error": "invalid_grant"}', "oauth.refused"),
        (400, '{"error": "invalid_request"}', "oauth.refused"),
        (401, '{"error": "invalid_client"}', "oauth.client_refused"),
        (400, '{"error": "unauthorized_client"}', "oauth.client_refused"),
        (400, '{"error": "invalid_scope"}', "oauth.client_refused"),
        (400, '{"error": 7}', "oauth.malformed"),
        (400, "{}", "oauth.malformed"),
        (403, "<html>", "oauth.malformed"),
        (404, '{"error": "invalid_grant"}', "oauth.unreachable"),
        (429, '{"error": "invalid_grant"}', "oauth.unreachable"),
        (206, '{"access_token": "a", "token_type": "Bearer"}', "oauth.unreachable"),
    ],
)
def test_error_answers_of_the_token_endpoint(
    front: Front, verifier: str, status: int, body: str, expected: str
) -> None:
    code = front.code(verifier)
    front.control.misbehave("oauth_token_verbatim", status=status, body=body)
    assert refusal(front.client, code, verifier).code == expected


@pytest.mark.threat("T46")
@pytest.mark.parametrize("fault", [None, "oauth_token_garbage", "oauth_userinfo_500", "oauth_revoke_500"])
def test_no_secret_code_verifier_or_token_is_told(
    front: Front, verifier: str, caplog: pytest.LogCaptureFixture, fault: str | None
) -> None:
    code = front.code(verifier)
    said: list[object] = [repr(front.client), vars(OAuthClient)]
    with caplog.at_level(logging.DEBUG):
        if fault is None:
            said.append(front.client.person(code, verifier))
            said.append(refusal(front.client, code, verifier))
        else:
            front.control.misbehave(fault)
            try:
                said.append(front.client.person(code, verifier))
            except BridgeError as error:
                said.extend([error, dict(error.context), error.__cause__, error.remedy])
    text = " ".join(map(str, said)) + " ".join(map(repr, said)) + caplog.text
    for secret in (SECRET, code, verifier, "Bearer "):
        assert secret not in text


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HttpsServer]:
    """A GitLab on the wire whose answers a test chooses."""
    with https_server(tmp_path) as server:
        server.body("/oauth/token", json.dumps({"access_token": "t0ken", "token_type": "bearer"}).encode())
        server.body("/oauth/userinfo", json.dumps({"sub": "101", "nickname": "alice", "name": "Alice"}).encode())
        server.body("/oauth/revoke", b"{}")
        yield server


def client_of(site: HttpsServer, path: str = "") -> OAuthClient:
    """The bridge as an application of this GitLab."""
    return OAuthClient(site.url + path, CLIENT, SECRET, CALLBACK, site.ca_file)


def test_what_is_sent_and_where(site: HttpsServer, verifier: str) -> None:
    assert client_of(site).person("c0de", verifier) == ALICE
    known = {"client_id": CLIENT, "client_secret": SECRET}
    exchange = {"grant_type": "authorization_code", "code": "c0de", "redirect_uri": CALLBACK, "code_verifier": verifier}
    assert site.forms == [
        ("/oauth/token", exchange | known),
        ("/oauth/revoke", {"token": "t0ken", "token_type_hint": "access_token"} | known),
    ]
    sent = dict(site.requests)
    assert list(sent) == ["/oauth/token", "/oauth/userinfo", "/oauth/revoke"]
    assert [headers.get("Authorization") for headers in sent.values()] == [None, "Bearer t0ken", None]


def test_a_gitlab_below_a_path_keeps_its_endpoints_there(site: HttpsServer, verifier: str) -> None:
    for path in list(site.answers):
        site.answers[f"/gitlab{path}"] = site.answers.pop(path)
    assert client_of(site, "/gitlab/").person("c0de", verifier) == ALICE
    assert {path for path, _ in site.requests} == {f"/gitlab/oauth/{name}" for name in ("token", "userinfo", "revoke")}


@pytest.mark.threat("T4")
def test_no_document_leads_to_another_endpoint(site: HttpsServer, verifier: str) -> None:
    elsewhere = dict.fromkeys(("token_endpoint", "userinfo_endpoint", "revocation_endpoint"), f"{site.url}/evil")
    site.body("/.well-known/openid-configuration", json.dumps({"issuer": site.url, **elsewhere}).encode())
    client_of(site).person("c0de", verifier)
    assert {path for path, _ in site.requests} == {"/oauth/token", "/oauth/userinfo", "/oauth/revoke"}


def redirect(handler: BaseHTTPRequestHandler) -> None:
    """To a place that would answer, keeping method and body."""
    handler.send_response(307)
    handler.send_header("Location", "/elsewhere")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.threat("T4")
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/userinfo", "/oauth/revoke"])
def test_follows_no_redirect_with_secrets(site: HttpsServer, verifier: str, path: str) -> None:
    site.answers["/elsewhere"] = site.answers[path]
    site.answers[path] = redirect
    if path == "/oauth/revoke":
        assert client_of(site).person("c0de", verifier) == ALICE
    else:
        assert refusal(client_of(site), "c0de", verifier).code == "oauth.unreachable"
    assert "/elsewhere" not in [asked for asked, _ in site.requests]


DRIP_SECONDS = 60
"""How long the slow answers take; nobody waits for half of it."""


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A body that ends when nobody listens any more."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def drip(handler: BaseHTTPRequestHandler, text: bytes) -> None:
    """A byte at a time, each well within the read time-out, for much longer than anybody waits."""
    pause = threading.Event()
    for byte in text:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        pause.wait(DRIP_SECONDS / len(text))


def dripping_body(handler: BaseHTTPRequestHandler) -> None:
    """The body comes slowly: all that matters at once, and then blanks."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"sub": "101", "nickname": "alice", "name": "Alice"}')
    drip(handler, b" " * 200)


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    """The headers come slowly."""
    drip(handler, b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 200)


def silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer at all."""
    threading.Event().wait(DRIP_SECONDS)


@pytest.mark.threat("T38")
@pytest.mark.parametrize("answer", [endless, dripping_body, dripping_headers, silent])
@pytest.mark.parametrize("path", ["/oauth/userinfo", "/oauth/revoke"])
def test_gives_up_on_answers_that_do_not_end(
    site: HttpsServer, verifier: str, path: str, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    site.answers[path] = answer
    began = time.monotonic()
    if path == "/oauth/revoke":
        assert client_of(site).person("c0de", verifier) == ALICE
    else:
        assert refusal(client_of(site), "c0de", verifier).code in ("oauth.unreachable", "oauth.malformed")
        assert ("/oauth/revoke", "t0ken") in [(asked, form.get("token")) for asked, form in site.forms]
    assert time.monotonic() - began < DRIP_SECONDS / 2


@pytest.mark.threat("T38")
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/userinfo"])
def test_one_byte_too_many_is_refused(site: HttpsServer, verifier: str, path: str) -> None:
    good = {
        "/oauth/token": b'{"access_token": "t0ken", "token_type": "Bearer", "scope": "openid"}',
        "/oauth/userinfo": b'{"sub": "101", "nickname": "alice", "name": "Alice"}',
    }[path]
    site.body(path, good.ljust(MAX_ANSWER_BYTES))
    assert client_of(site).person("c0de", verifier) == ALICE
    site.body(path, good.ljust(MAX_ANSWER_BYTES + 1))
    assert refusal(client_of(site), "c0de", verifier).code == "oauth.malformed"


@pytest.mark.threat("T4")
def test_sends_no_secret_to_a_server_of_another_ca(site: HttpsServer, verifier: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with https_server(tmp_path / "other") as stranger:
        client = OAuthClient(site.url, CLIENT, SECRET, CALLBACK, stranger.ca_file)
        assert refusal(client, "c0de", verifier).code == "oauth.unreachable"
    assert (site.requests, site.forms) == ([], [])


@pytest.mark.threat("T4")
def test_takes_no_proxy_from_the_environment(site: HttpsServer, verifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert client_of(site).person("c0de", verifier) == ALICE


@pytest.mark.parametrize("url", ["http://a.test", "https://", "https://u@a.test", "https://a.test?x", "file:///x"])
def test_takes_only_plain_https_urls(tmp_path: Path, url: str) -> None:
    for issuer, callback in ((url, CALLBACK), ("https://gitlab.realm.test", url)):
        with pytest.raises(ValueError, match="https"):
            OAuthClient(issuer, CLIENT, None, callback, tmp_path / "ca.pem")
