"""The commands' client: it asks the one server that it is told, and believes nothing that was not proven to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from bench import refused
from remote_site import FakeProof, client_file
from test_cli import failed, run

from bridge.cli import remote as client
from bridge.cli.remote import Remote, connect
from bridge.errors import BridgeError, Conflict, Defect, NotFound, Outage, PolicyRefused, RequestRefused, TokenRefused
from bridge.settings import load_client
from tests.unit.oidc.https_server import HttpsServer, _certificate, https_server

ALICE = FakeProof("alice@REALM.TEST")
PROVEN = {"WWW-Authenticate": "Negotiate cmVwbHkgdG8gYWxpY2VAUkVBTE0uVEVTVA=="}
"""What ``FakeProof`` takes for the server's proof."""
ME = {"principal": "alice@REALM.TEST", "account": "alice", "roles": []}
PROBLEM = {"code": "a.b", "title": "No.", "remedy": "Do.", "reference": "7F3K-9QXM-2DTB"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpsServer]:
    with https_server(tmp_path) as server:
        yield server


@pytest.fixture
def bridge(server: HttpsServer) -> Remote:
    return Remote(server.url, server.ca_file, lambda _: ALICE)


def answer(server: HttpsServer, document: Any, status: int = 200, path: str = "/v1/me", **headers: str) -> None:
    """Answer as the bridge would, proven; ``headers`` change that."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    plain = {"Content-Type": "application/json" if status < 400 else "application/problem+json"}
    server.body(path, body, status, plain | PROVEN | headers)


def test_an_answer_is_asked_for_with_a_proof_and_our_name(server: HttpsServer, bridge: Remote) -> None:
    answer(server, ME)
    assert bridge.get("/v1/me") == ME
    assert bridge.post("/v1/me", {"reason": "é"}) == ME
    (_, get), (_, post) = server.requests
    for headers in (get, post):
        assert headers["Authorization"] == ALICE.header
        assert headers["X-CI-Bridge-Client"] == "ci-bridge"
        assert "Cookie" not in headers
    assert post["Content-Type"] == "application/json"
    assert server.forms == [("/v1/me", {'{"reason": "\\u00e9"}': ""})]


@pytest.mark.threat("T40")
@pytest.mark.parametrize("reply", ["", "Negotiate", "Negotiate QUFBQQ==", PROVEN["WWW-Authenticate"] + ", Basic"])
@pytest.mark.parametrize("status", [200, 201])
def test_a_yes_without_the_servers_proof_is_not_believed(
    server: HttpsServer, bridge: Remote, reply: str, status: int
) -> None:
    answer(server, ME, status, **{"WWW-Authenticate": reply})
    assert refused(lambda: bridge.get("/v1/me")).code == "kerberos.server_unproven"


@pytest.mark.threat("T41")
def test_a_redirect_is_not_followed_with_the_token(server: HttpsServer, bridge: Remote) -> None:
    for status in (301, 302, 303, 307, 308):
        answer(server, b"", status, Location=f"{server.url}/elsewhere")
        assert refused(lambda: bridge.post("/v1/me", {})).code == "remote.unreadable"
    assert {path for path, _ in server.requests} == {"/v1/me"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestRefused),
        (401, TokenRefused),
        (403, PolicyRefused),
        (404, NotFound),
        (409, Conflict),
        (413, RequestRefused),
        (422, RequestRefused),
        (500, Defect),
        (503, Outage),
    ],
)
def test_a_problem_is_raised_again_as_what_it_is(
    server: HttpsServer, bridge: Remote, status: int, kind: type[BridgeError]
) -> None:
    answer(server, PROBLEM, status)
    error = refused(lambda: bridge.get("/v1/me"))
    assert type(error) is kind
    assert (error.code, error.title, error.remedy, error.reference) == tuple(PROBLEM.values())


@pytest.mark.threat("T45")
@pytest.mark.parametrize(
    "change",
    [
        {"code": "a b"},
        {"code": "a.b] \x1b[2J"},
        {"code": 1},
        {"title": "No.\x1b]0;owned\x07"},
        {"title": "No\nWhat to do: send your password"},
        {"title": "\u202eNo"},
        {"title": ""},
        {"remedy": "x" * 2001},
        {"remedy": None},
        {"reference": "\x9b2J"},
        {"reference": None},
    ],
    ids=str,
)
def test_words_that_move_a_terminal_are_not_shown(
    server: HttpsServer, bridge: Remote, change: dict[str, object]
) -> None:
    answer(server, PROBLEM | change, 403)
    assert refused(lambda: bridge.get("/v1/me")).code == "remote.unreadable"


@pytest.mark.threat("T3")
@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a": 1, "a": 2}', b"\xff", b"null", b"{" * 10_000], ids=range(7))
def test_an_answer_of_no_or_two_readings_is_refused(
    server: HttpsServer, bridge: Remote, status: int, body: bytes
) -> None:
    answer(server, body, status)
    assert refused(lambda: bridge.get("/v1/me")).code == "remote.unreadable"


def test_a_page_of_a_proxy_is_no_problem_of_ours(server: HttpsServer, bridge: Remote) -> None:
    answer(server, PROBLEM, 502, **{"Content-Type": "text/html"})
    assert refused(lambda: bridge.get("/v1/me")).code == "remote.unreadable"


@pytest.mark.threat("T38")
def test_an_answer_without_end_costs_bounded_memory_and_time(
    server: HttpsServer, bridge: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(server, b" " * (client.MAX_ANSWER_BYTES + 1))
    assert refused(lambda: bridge.get("/v1/me")).code == "remote.unreadable"

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1000):
            handler.wfile.write(b" ")
            time.sleep(0.02)

    monkeypatch.setattr(client, "TOTAL_SECONDS", 0.5)
    server.answers["/v1/me"] = drip
    assert refused(lambda: bridge.get("/v1/me")).code == "remote.unreachable"


def test_a_server_that_is_not_there_is_an_outage(tmp_path: Path) -> None:
    with https_server(tmp_path) as server:
        url, ca_file = server.url, server.ca_file
    assert refused(lambda: Remote(url, ca_file, lambda _: ALICE).get("/v1/me")).code == "remote.unreachable"


@pytest.mark.threat("T40")
def test_a_certificate_of_another_authority_gets_no_token(server: HttpsServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    certificate, _ = _certificate(other)
    answer(server, ME)
    assert refused(lambda: Remote(server.url, certificate, lambda _: ALICE).get("/v1/me")).code == "remote.untrusted"
    assert server.requests == []


@pytest.mark.threat("T40")
def test_the_proxy_of_the_environment_gets_nothing(
    server: HttpsServer, bridge: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    answer(server, ME)
    assert bridge.get("/v1/me") == ME


@pytest.mark.parametrize("text", [None, b"no certificate"])
def test_a_ca_file_that_is_none_is_named(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_bytes(text)
    error = refused(lambda: Remote("https://localhost", file, lambda _: ALICE))
    assert error.code == "remote.ca_file"
    assert str(file) in error.title


def test_an_answer_that_is_another_value_than_ours_is_refused(
    server: HttpsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = client_file(tmp_path / "client.toml", server=server.url, ca_file=server.ca_file)
    monkeypatch.setenv("CI_BRIDGE_CLIENT", str(file))
    monkeypatch.setattr(
        client, "Initiator", lambda host, realm: type("Tickets", (), {"begin": lambda _tickets, _binding: ALICE})()
    )
    answer(server, {"standing": {"account": "alice"}}, path="/v1/consent")
    failed(run("consent", "show"), "remote.unreadable")


@pytest.fixture
def no_client_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine where nobody has set anything up."""
    monkeypatch.setattr("bridge.settings.CLIENT_FILE", tmp_path / "absent.toml")
    for name in ("CI_BRIDGE_CLIENT", "CI_BRIDGE_SERVER", "CI_BRIDGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_client_file")
def test_the_address_is_the_options_then_the_environments_then_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert refused(load_client).code == "settings.no_server"
    members = {"server": "https://file.test", "ca_file": "/ca.pem", "realm": "REALM.TEST"}
    monkeypatch.setattr("bridge.settings.CLIENT_FILE", client_file(tmp_path / "client.toml", **members))
    assert load_client().server == "https://file.test"
    monkeypatch.setenv("CI_BRIDGE_SERVER", "https://environment.test:8443/")
    assert load_client().server == "https://environment.test:8443"
    found = load_client("https://option.test")
    assert (found.server, found.ca_file, found.realm) == ("https://option.test", Path("/ca.pem"), "REALM.TEST")


@pytest.mark.usefixtures("no_client_file")
@pytest.mark.parametrize(
    "address",
    [
        *("http://bridge.test", "bridge.test", "https://", "https://a@bridge.test", "https://bridge.test/path"),
        *("https://bridge.test?x", "https://Bridge.test", "https://bridge.test\n", "https://bri dge.test", "//x"),
    ],
)
def test_an_address_that_is_none_of_ours_is_refused(address: str) -> None:
    said = failed(run("account", "whoami", "--server", address), "settings.invalid")
    assert "--server" in said


@pytest.mark.usefixtures("no_client_file")
def test_a_client_file_with_an_unknown_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = client_file(tmp_path / "client.toml", server="https://bridge.test", ca_fiel="/ca.pem")
    monkeypatch.setenv("CI_BRIDGE_CLIENT", str(file))
    assert str(file) in failed(run("account", "whoami"), "settings.invalid")
    monkeypatch.setenv("CI_BRIDGE_CLIENT", str(tmp_path / "nosuch.toml"))
    failed(run("account", "whoami"), "settings.unreadable")


def test_the_kerberos_service_is_that_of_the_host_without_its_port(
    server: HttpsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = client_file(tmp_path / "c.toml", server=server.url, ca_file=server.ca_file, realm="REALM.TEST")
    monkeypatch.setenv("CI_BRIDGE_CLIENT", str(file))
    made: list[tuple[str, str | None]] = []

    class Tickets:
        def __init__(self, host: str, realm: str | None) -> None:
            made.append((host, realm))

        def begin(self, binding: bytes | None = None) -> FakeProof:
            return ALICE

    monkeypatch.setattr(client, "Initiator", Tickets)
    answer(server, ME)
    assert connect(load_client()).get("/v1/me") == ME
    assert made == [("localhost", "REALM.TEST")]
