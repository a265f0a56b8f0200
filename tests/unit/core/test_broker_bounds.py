"""What a peer can't do to the broker by being slow, many, or long: web may be taken over (T21, T38)."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from bench import wait_until

from bridge.broker import incoming
from bridge.broker.client import BrokerClient
from bridge.broker.peer import Peer
from bridge.broker.server import Answer, BrokerServer, listen
from runner import wire

PLACES = 3
LARGEST = wire.MAX_DATA_BYTES


class Desk:
    """Counts what is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def count(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        """Answer with as much data as was wanted."""
        self.asked += 1
        return {}, bytes(int(request.get("size", 4)))


@pytest.fixture
def desk() -> Desk:
    """What the server under test does."""
    return Desk()


@pytest.fixture
def path(desk: Desk, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a server with few places and little patience."""
    monkeypatch.setattr("bridge.broker.server.MAX_CONNECTIONS", PLACES)
    monkeypatch.setattr("bridge.broker.server.READ_SECONDS", 0.4)
    wait_until(lambda: conversations() == 0, "the end of what other servers of this process still do")
    path = short_path / "b.sock"
    server = BrokerServer(listen(path), frozenset({os.geteuid()}), {"count": desk.count})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield path
    server.stop()
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def patience(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Gives the server more of it: for those who must be answered, however slow this machine is just now."""
    return lambda seconds: monkeypatch.setattr("bridge.broker.server.READ_SECONDS", seconds)


def connected(path: Path) -> socket.socket:
    """A connection that waits at most 20 s for anything."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(path))
    return connection


def conversations() -> int:
    """How many connections have a thread."""
    return sum("_converse" in thread.name for thread in threading.enumerate())


def ended(connection: socket.socket) -> bool:
    """Wait for the server's end of a connection that gets no answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.threat("T38")
@pytest.mark.parametrize("pieces", [b"", wire.encode({"op": "count"})[:-1]], ids=["says nothing", "never ends"])
def test_a_silent_peer_does_not_keep_its_place(path: Path, desk: Desk, pieces: bytes) -> None:
    with connected(path) as connection:
        connection.sendall(pieces)
        assert ended(connection)
    assert desk.asked == 0


@pytest.mark.threat("T38")
def test_a_slow_writer_does_not_keep_its_place(path: Path, desk: Desk) -> None:
    """A byte now and then, each well within the time that a single read may take."""
    frame = wire.encode({"op": "count", "fill": "x" * 4096})
    with connected(path) as connection:
        for place in range(len(frame)):
            try:
                connection.sendall(frame[place : place + 1])
            except (BrokenPipeError, ConnectionResetError):
                break
            if select.select([connection], [], [], 0.1)[0]:
                break
        else:
            pytest.fail("the whole frame was taken, however long it took")
        assert ended(connection)
    assert desk.asked == 0


@pytest.mark.threat("T38")
def test_a_reader_that_does_not_read_does_not_keep_its_place(
    path: Path, desk: Desk, patience: Callable[[float], None]
) -> None:
    patience(3)
    with ExitStack() as stack:
        for _ in range(PLACES):
            connection = stack.enter_context(connected(path))
            connection.sendall(wire.encode({"op": "count", "size": LARGEST}))
        assert BrokerClient(path, timeout_seconds=20).ask("count")[1] == bytes(4)
    assert desk.asked == PLACES + 1


TOO_LONG = {
    "a header over the limit": struct.pack(">II", wire.MAX_HEADER_BYTES + 1, 0) + b" " * (wire.MAX_HEADER_BYTES + 1),
    "more data than a frame may have": struct.pack(">II", 14, LARGEST + 1) + b'{"op":"count"}' + bytes(LARGEST + 1),
    "data that is promised only": struct.pack(">II", 14, LARGEST) + b'{"op":"count"}',
}


@pytest.mark.threat("T21")
@pytest.mark.threat("T38")
@pytest.mark.parametrize("data", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_request_that_is_too_long_is_not_read_to_its_end(path: Path, desk: Desk, data: bytes) -> None:
    with connected(path) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        assert ended(connection)
    assert desk.asked == 0


def test_the_longest_request_is_answered(path: Path, patience: Callable[[float], None]) -> None:
    patience(30)
    room = wire.MAX_HEADER_BYTES - len(wire.encode({"op": "count", "x": ""})) + 8
    data = bytes(LARGEST)
    assert BrokerClient(path, timeout_seconds=20).ask("count", data=data, x="y" * room)[0] == {"ok": True}
    assert len(wire.encode({"op": "count", "x": "y" * room}, data)) == incoming.MAX_REQUEST_BYTES


@pytest.mark.threat("T38")
def test_many_connections_have_no_more_threads_than_places(
    path: Path, desk: Desk, patience: Callable[[float], None]
) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(connected(path)) for _ in range(15)]
        wait_until(lambda: conversations() == PLACES)
        for connection in crowd:
            assert conversations() <= PLACES
            assert ended(connection)
        patience(30)
        assert BrokerClient(path, timeout_seconds=20).ask("count")[1] == bytes(4)
    assert desk.asked == 1


def test_a_full_server_stops_when_it_is_told_to(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.broker.server.MAX_CONNECTIONS", 1)
    path = short_path / "b.sock"
    server = BrokerServer(listen(path), frozenset({os.geteuid()}), {})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with connected(path), connected(path):
        wait_until(lambda: conversations() == 1)
        server.stop()
        thread.join(30)
    assert not thread.is_alive()


CROWD = """
import socket, sys
crowd = []
for _ in range(20):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    crowd.append(connection)
print("here", flush=True)
sys.stdin.read()
"""


@pytest.mark.threat("T21")
@pytest.mark.threat("T38")
def test_strangers_take_no_place(path: Path, desk: Desk, patience: Callable[[float], None]) -> None:
    """Were the socket open to others: they are turned away before a thread is theirs."""
    patience(60)
    path.chmod(0o666)
    path.parent.chmod(0o755)
    start = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "/usr/bin/python3", "-I", "-S", "-c"]
    with subprocess.Popen([*start, CROWD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
        assert crowd.stdout
        assert crowd.stdout.readline() == b"here\n"
        assert BrokerClient(path, timeout_seconds=20).ask("count")[1] == bytes(4)
        assert conversations() <= 1
        crowd.communicate(timeout=20)
    assert desk.asked == 1
