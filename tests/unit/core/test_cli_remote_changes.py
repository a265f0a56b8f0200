"""The commands' client when it changes something: once, only what was read, and by a token where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from bench import refused
from remote_site import FakeProof, client_file
from test_cli_remote import ME, PROBLEM, PROVEN, answer

from bridge.cli.remote import Remote, TokenProof, connect
from bridge.errors import Conflict
from bridge.settings import load_client
from tests.unit.oidc.https_server import HttpsServer, https_server

TOKEN = "cib_" + "a" * 43
PATH = "/v1/admin/proposals"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpsServer]:
    with https_server(tmp_path) as server:
        yield server


@pytest.fixture
def bridge(server: HttpsServer) -> Remote:
    return Remote(server.url, server.ca_file, lambda _: FakeProof("alice@REALM.TEST"))


def cut(server: HttpsServer, times: int) -> None:
    """Let the connection end without an answer so many times, then answer."""

    def one(handler: BaseHTTPRequestHandler) -> None:
        nonlocal times
        times -= 1
        if times >= 0:
            handler.close_connection = True
            return
        body = json.dumps(ME).encode()
        handler.send_response(201)
        for name, value in (PROVEN | {"Content-Length": str(len(body))}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    server.answers[PATH] = one


def keys(server: HttpsServer) -> list[str | None]:
    """The idempotency keys of all requests."""
    return [headers.get("Idempotency-Key") for _, headers in server.requests]


def test_what_is_created_is_asked_for_again_with_the_same_key(server: HttpsServer, bridge: Remote) -> None:
    cut(server, 1)
    assert bridge.create(PATH, {}) == ME
    first, second = keys(server)
    assert first == second is not None
    bridge.create(PATH, {})
    assert keys(server)[2] not in (None, first)


def test_it_is_asked_for_twice_and_no_more(server: HttpsServer, bridge: Remote) -> None:
    cut(server, 9)
    assert refused(lambda: bridge.create(PATH, {})).code == "remote.unreachable"
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [403, 409, 503])
def test_a_no_is_not_asked_for_again(server: HttpsServer, bridge: Remote, status: int) -> None:
    answer(server, PROBLEM, status, PATH)
    assert refused(lambda: bridge.create(PATH, {})).code == "a.b"
    assert len(server.requests) == 1


@pytest.mark.threat("T48")
def test_what_changes_something_without_a_key_is_never_asked_for_again(server: HttpsServer, bridge: Remote) -> None:
    cut(server, 1)
    assert refused(lambda: bridge.change("POST", PATH, {}, version=7)).code == "remote.unreachable"
    ((_, headers),) = server.requests
    assert headers["If-Match"] == '"7"'
    assert "Idempotency-Key" not in headers


def test_a_version_that_is_not_any_more_is_a_conflict(server: HttpsServer, bridge: Remote) -> None:
    answer(server, PROBLEM, 412, PATH)
    assert type(refused(lambda: bridge.change("POST", PATH, {}, version=7))) is Conflict


def by_token(server: HttpsServer, directory: Path, monkeypatch: pytest.MonkeyPatch, **members: Any) -> Remote:
    """The bridge, for a program with a token and without any ticket."""
    token = directory / "token"
    token.write_text(TOKEN + "\n")
    file = client_file(directory / "c.toml", server=server.url, ca_file=server.ca_file, **members)
    monkeypatch.setenv("CI_BRIDGE_CLIENT", str(file))
    monkeypatch.delenv("CI_BRIDGE_SERVER", raising=False)
    monkeypatch.setattr("bridge.cli.remote.Initiator", lambda *_: pytest.fail("a ticket was asked for"))
    return connect(load_client(None, None if members else token))


@pytest.mark.parametrize("in_file", [False, True])
def test_a_program_calls_by_its_token(
    server: HttpsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool
) -> None:
    members = {"token_file": tmp_path / "token"} if in_file else {}
    answer(server, ME, **{"WWW-Authenticate": "none"})
    assert by_token(server, tmp_path, monkeypatch, **members).get("/v1/me") == ME
    ((_, headers),) = server.requests
    assert headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.threat("T40")
def test_a_token_goes_to_no_server_that_is_not_trusted(
    server: HttpsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with https_server(other) as stranger:
        bridge = by_token(server, tmp_path, monkeypatch)
        bridge.server = stranger.url
        assert refused(lambda: bridge.get("/v1/me")).code == "remote.untrusted"
        assert stranger.requests == []


def test_a_token_does_not_print() -> None:
    assert TOKEN not in repr(TokenProof(f"Bearer {TOKEN}"))
