"""A login session is only given out when its agent runs as the account that was meant."""

from __future__ import annotations

import socket
import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from bridge.cluster import opening
from bridge.cluster.opening import LoginOpener
from bridge.errors import Defect
from bridge.model import Cluster, Ticket, TicketBundle
from runner import wire

CLUSTER = Cluster("c", "R", "login.c", 22, (), (), "/b", "/c", "FILE:/x", "FILE:/x", ())
NOW = datetime.now(UTC)
BUNDLE = TicketBundle("alice@R", (Ticket("alice@R", "host/login.c@R", NOW, NOW, "0"),), b"")


class Pipe:
    """One end of a socket pair, and the connection around it."""

    last_words = ""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.closed = False

    def run(self, command: str) -> Pipe:
        assert command == "ci-bridge-login"
        return self

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def receive(self, seconds: float) -> bytes:
        self._end.settimeout(seconds)
        return self._end.recv(1 << 16)

    def close(self) -> None:
        self.closed = True
        self._end.close()


def _agent_says(end: socket.socket, answer: dict[str, Any]) -> threading.Thread:
    def serve() -> None:
        with end, end.makefile("rb") as stream:
            frame = wire.read_frame(stream)
            assert frame is not None
            end.sendall(wire.encode({"id": frame[0]["id"], "event": "done"} | answer))
            stream.read(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def _open(monkeypatch: pytest.MonkeyPatch, **changes: object) -> tuple[Any, Pipe]:
    ours, theirs = socket.socketpair()
    pipe = Pipe(ours)
    monkeypatch.setattr(opening, "connect", lambda *_: pipe)
    answer = {"protocol": 1, "user": "alice", "uid": 20001, "gid": 20001, "host": "login.c", "home": "/home/alice"}
    _agent_says(theirs, answer | changes)
    opener = LoginOpener(lambda _: nullcontext(None), None)  # type: ignore[arg-type]
    try:
        return opener(CLUSTER, "alice", BUNDLE), pipe
    except Defect as error:
        return error, pipe


def test_an_agent_of_the_right_person_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    session, pipe = _open(monkeypatch)
    assert session.alive
    session.close()
    assert pipe.closed


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"user": "bob"}, "login.wrong_person"),
        ({"user": "root", "uid": 0}, "login.wrong_person"),
        ({"uid": 0}, "login.wrong_person"),
        ({"protocol": 2}, "login.protocol"),
    ],
    ids=str,
)
def test_any_other_agent_is_left_and_its_connection_closed(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, object], code: str
) -> None:
    error, pipe = _open(monkeypatch, **change)
    assert isinstance(error, Defect)
    assert error.code == code
    assert pipe.closed
