"""One connection, many requests: answers find their way, a broken connection fails all, a slow reader loses nothing."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bridge.cluster import agent, stream
from bridge.cluster.agent import AgentConnection
from bridge.cluster.login import LoginSession
from bridge.errors import BridgeError, Outage, RequestRefused
from runner import wire

Frame = tuple[dict[str, Any], bytes]


class SocketPipe:
    """A Pipe over one end of a socket pair."""

    last_words = "sshd says goodbye"

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, data: bytes) -> None:
        self._end.settimeout(10)
        self._end.sendall(data)

    def receive(self, seconds: float) -> bytes:
        self._end.settimeout(seconds)
        return self._end.recv(1 << 16)

    def close(self) -> None:
        self._end.close()


class Peer:
    """The other end: a login agent whose answers a test writes."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._decoder = wire.Decoder()
        self._frames = deque[Frame]()

    def next(self) -> Frame:
        while not self._frames:
            piece = self.end.recv(1 << 16)
            assert piece
            self._frames += self._decoder.feed(piece)
        return self._frames.popleft()

    def next_if_any(self) -> Frame | None:
        """What has come, or comes within a moment."""
        self.end.settimeout(0.002)
        try:
            return self.next()
        except TimeoutError:
            return None
        finally:
            self.end.settimeout(10)

    def say(self, header: dict[str, Any], data: bytes = b"") -> None:
        self.end.sendall(wire.encode(header, data))

    def close(self) -> None:
        self.end.close()


@pytest.fixture
def ends() -> Iterator[tuple[AgentConnection, Peer]]:
    ours, theirs = socket.socketpair()
    connection, peer = AgentConnection(SocketPipe(ours)), Peer(theirs)
    yield connection, peer
    connection.close()
    peer.close()


def _in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def work() -> None:
        try:
            results.append(call())
        except BridgeError as error:
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, results


def test_answers_reach_those_who_asked_in_any_order(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    session = LoginSession(connection)
    asked = [_in_thread(lambda name=name: session.find(name)) for name in ("a", "b", "c")]  # type: ignore[misc]
    requests = [peer.next()[0] for _ in asked]
    for request in reversed(requests):
        job = {"job_id": str(ord(request["name"])), "state": "RUNNING", "nodes": "", "reason": "", "submit": ""}
        peer.say({"id": request["id"], "event": "done", "jobs": [job]})
    for (thread, results), name in zip(asked, "abc", strict=True):
        thread.join(10)
        assert [row.job_id for row in results[0]] == [ord(name)]  # type: ignore[attr-defined]
    assert connection.pending == 0


def test_a_broken_connection_fails_everything_that_waits(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    session = LoginSession(connection)
    script = session.run(b"sleep 9", env={})
    log = session.follow("/x", 0)
    asked = _in_thread(session.hello)
    for _ in range(3):
        peer.next()
    peer.close()
    asked[0].join(10)
    for error in (asked[1][0], _error(lambda: list(script)), _error(lambda: list(log)), _error(session.hello)):
        assert isinstance(error, Outage)
        assert error.code == "login.connection_lost"
        assert error.context["stderr"] == "sshd says goodbye"
    assert not connection.alive


@pytest.mark.parametrize(
    "garbage", [b"Last login: today\n" * 3, b"\xff" * 64, b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\2\0\0\0\0{}"]
)
def test_what_is_no_frame_ends_the_connection(ends: tuple[AgentConnection, Peer], garbage: bytes) -> None:
    connection, peer = ends
    asked = _in_thread(LoginSession(connection).hello)
    peer.next()
    peer.end.sendall(garbage)
    asked[0].join(10)
    assert isinstance(asked[1][0], Outage)
    assert not connection.alive


def test_a_silent_agent_is_asked_and_then_given_up() -> None:
    ours, theirs = socket.socketpair()
    connection, peer = AgentConnection(SocketPipe(ours), ping_seconds=0.1), Peer(theirs)
    assert peer.next()[0]["verb"] == "hello"
    assert _wait(lambda: not connection.alive)
    peer.close()


def test_an_agent_that_answers_the_ping_is_kept() -> None:
    ours, theirs = socket.socketpair()
    connection, peer = AgentConnection(SocketPipe(ours), ping_seconds=2.0), Peer(theirs)
    for _ in range(2):
        peer.say({"id": peer.next()[0]["id"], "event": "done", "protocol": 1})
    assert connection.alive
    connection.close()
    peer.close()


def test_a_late_answer_is_an_outage_and_its_frame_is_ignored(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    with pytest.raises(Outage, match=r"login\.timeout"):
        connection.ask("hello", 0.05)
    number = peer.next()[0]["id"]
    peer.say({"id": number, "event": "done"})
    asked = _in_thread(lambda: connection.ask("hello", 10))
    peer.say({"id": peer.next()[0]["id"], "event": "done", "x": 1})
    asked[0].join(10)
    assert asked[1] == [{"id": number + 1, "event": "done", "x": 1}]


def test_a_script_over_the_limit_is_refused_and_nothing_is_sent(ends: tuple[AgentConnection, Peer]) -> None:
    connection, _ = ends
    with pytest.raises(RequestRefused, match=r"login\.too_large"):
        LoginSession(connection).run(b"x" * (wire.MAX_DATA_BYTES + 1), env={})
    assert connection.pending == 0
    assert connection.alive


def test_a_script_gives_its_output_and_then_its_exit(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    script = LoginSession(connection).run(b"echo", env={"A": "b"}, cwd="/x")
    header, data = peer.next()
    assert (header["verb"], header["env"], header["cwd"], data) == ("run", {"A": "b"}, "/x", b"echo")
    for piece in (b"one\n", b"two\n"):
        peer.say({"id": header["id"], "event": "output"}, piece)
    peer.say({"id": header["id"], "event": "done", "exit_code": 3, "signal": None})
    assert list(script) == [b"one\n", b"two\n"]
    assert (script.exit.exit_code, script.exit.signal) == (3, None)


def test_a_reader_that_falls_behind_takes_the_file_up_again_where_it_was(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    whole = bytes(range(256)) * 4096 * 6
    log = LoginSession(connection).follow("/log", 0)
    serving = threading.Thread(target=_serve_file, args=(peer, whole), daemon=True)
    serving.start()
    # The agent has sent more than is held before anything is taken.
    assert _wait(lambda: log._round.overflowed)
    held = log._round.stream._held
    assert held <= stream.HOLD_BYTES + 64 * 1024
    got = bytearray()
    log.finish()
    for offset, data in log:
        assert offset == len(got)
        got += data
    assert bytes(got) == whole
    assert connection.alive


def test_a_reader_who_waits_for_a_while_only_is_told_of_what_comes_later(
    ends: tuple[AgentConnection, Peer],
) -> None:
    connection, peer = ends
    ready = threading.Semaphore(0)
    log = LoginSession(connection).follow("/log", 0, ready.release)
    number = peer.next()[0]["id"]
    assert list(log.waiting(0.01)) == []
    for offset, data in ((0, b"abc"), (3, b"d")):
        peer.say({"id": number, "event": "output", "offset": offset}, data)
        assert ready.acquire(timeout=10)
        assert list(log.waiting(0.01)) == [(offset, data)]
    log.finish()
    assert peer.next()[0]["drain"] is True
    peer.say({"id": number, "event": "output", "offset": 4}, b"ef")
    peer.say({"id": number, "event": "done"})
    assert ready.acquire(timeout=10)
    assert ready.acquire(timeout=10)
    assert list(log) == [(4, b"ef")]
    assert list(log.waiting(0.01)) == []


def test_a_reader_who_is_away_is_told_of_a_connection_that_broke(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    ready = threading.Semaphore(0)
    log = LoginSession(connection).follow("/log", 0, ready.release)
    peer.next()
    peer.close()
    assert ready.acquire(timeout=10)
    error = _error(lambda: list(log.waiting(10)))
    assert isinstance(error, Outage)
    assert error.code == "login.connection_lost"


def test_a_reader_who_comes_now_and_then_loses_nothing_of_more_than_is_held(
    ends: tuple[AgentConnection, Peer],
) -> None:
    connection, peer = ends
    whole, ready, got = bytes(range(256)) * 4096 * 6, threading.Semaphore(0), bytearray()
    log = LoginSession(connection).follow("/log", 0, ready.release)
    serving = threading.Thread(target=_serve_file, args=(peer, whole), daemon=True)
    serving.start()
    assert _wait(lambda: log._round.overflowed)
    log.finish()
    while len(got) < len(whole):
        assert ready.acquire(timeout=20)
        for offset, data in log.waiting(0.0):
            assert offset == len(got)
            got += data
    assert bytes(got) == whole
    assert list(log) == []
    serving.join(10)
    assert not serving.is_alive()


def test_what_comes_while_a_reader_leaves_is_not_skipped(
    ends: tuple[AgentConnection, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, peer = ends
    log = LoginSession(connection).follow("/log", 0)
    number, current = peer.next()[0]["id"], log._round
    take = current.stream.take

    def take_and_fall_behind(seconds: float | None) -> tuple[int, bytes] | None:
        taken = take(seconds)
        if taken is None and not current.overflowed:
            current.output({"offset": 0}, b"abc")
            current.overflowed = True
        return taken

    monkeypatch.setattr(current.stream, "take", take_and_fall_behind)
    assert list(log.waiting(0.0)) == []
    assert list(log.waiting(0.0)) == [(0, b"abc")]
    peer.say({"id": number, "event": "done"})
    assert _wait(lambda: current.stream.drained)
    assert list(log.waiting(0.0)) == []
    assert peer.next()[0]["offset"] == 3


def test_a_log_with_a_gap_is_not_passed_on(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    log = LoginSession(connection).follow("/log", 5)
    number = peer.next()[0]["id"]
    peer.say({"id": number, "event": "output", "offset": 5}, b"abc")
    peer.say({"id": number, "event": "output", "offset": 9}, b"d")
    taken = iter(log)
    assert next(taken) == (5, b"abc")
    with pytest.raises(Outage, match=r"login\.gap"):
        next(taken)


def test_an_abandoned_log_ends_at_once(ends: tuple[AgentConnection, Peer]) -> None:
    connection, peer = ends
    log = LoginSession(connection).follow("/log", 0)
    number = peer.next()[0]["id"]
    peer.say({"id": number, "event": "output", "offset": 0}, b"abc")
    reading = _in_thread(lambda: list(log))
    log.abandon()
    reading[0].join(10)
    assert len(reading[1]) == 1
    header, _ = peer.next()
    assert (header["verb"], header["target"], header["drain"]) == ("stop", number, False)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"job_id": 7},
        {"job_id": "0"},
        {"job_id": "-1"},
        {"job_id": "7;rm"},
        {"job_id": "٣"},
        {"job_id": "99999999999"},
    ],
)
def test_an_odd_job_id_is_not_believed(ends: tuple[AgentConnection, Peer], answer: dict[str, Any]) -> None:
    connection, peer = ends
    asked = _in_thread(lambda: LoginSession(connection).submit(["--hold"]))
    peer.say({"id": peer.next()[0]["id"], "event": "done"} | answer)
    asked[0].join(10)
    assert isinstance(asked[1][0], Outage)
    assert asked[1][0].code == "login.malformed"


def test_slow_output_of_a_script_does_not_hold_up_the_connection_for_ever(
    ends: tuple[AgentConnection, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, peer = ends
    monkeypatch.setattr(stream, "PATIENCE_SECONDS", 0.1)
    session = LoginSession(connection)
    script = session.run(b"yes", env={})
    number = peer.next()[0]["id"]
    for _ in range(2 + stream.HOLD_BYTES // (1 << 20)):
        peer.say({"id": number, "event": "output"}, b"y" * (1 << 20))
    header, _ = peer.next()
    assert (header["verb"], header["target"]) == ("stop", number)
    asked = _in_thread(session.hello)
    peer.say({"id": peer.next()[0]["id"], "event": "error", "code": "agent.busy", "title": "t", "remedy": "r"})
    asked[0].join(10)
    assert isinstance(asked[1][0], BridgeError)
    with pytest.raises(Outage, match=r"login\.slow_consumer"):
        list(script)


def test_printable_keeps_lines_apart_and_within_bounds() -> None:
    assert agent.printable("a\nb\tc  d", 100) == "a b c d"
    assert agent.printable("x" * 500, 10) == "x" * 10
    assert agent.printable(None, 10) == ""


def _serve_file(peer: Peer, whole: bytes) -> None:
    """Answer follow and stop as the login agent does, for one file."""
    while True:
        header, _ = peer.next()
        if header["verb"] != "follow":
            continue
        number, place, drain = header["id"], header["offset"], False
        while True:
            if place < len(whole):
                peer.end.settimeout(10)
                peer.say({"id": number, "event": "output", "offset": place}, whole[place : place + 65536])
                place = min(len(whole), place + 65536)
            elif drain:
                break
            asked = peer.next_if_any()
            if asked is not None:
                stop, _ = asked
                peer.say({"id": stop["id"], "event": "done"})
                if not stop["drain"]:
                    break
                drain = True
        peer.say({"id": number, "event": "done", "offset": place})
        if drain:
            return


def _error(call: Callable[[], object]) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        call()
    return caught.value


def _wait(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


@pytest.mark.threat("T33")
@pytest.mark.parametrize("verb", ["run", "submit", "cancel", "follow", "put", "tickets", "destroy", "state"])
def test_nothing_new_begins_after_the_tickets_end_and_what_runs_may_be_stopped(verb: str) -> None:
    ours, theirs = socket.socketpair()
    far = Peer(theirs)
    ended = AgentConnection(SocketPipe(ours), ends=datetime.now(UTC))
    try:
        with pytest.raises(Outage, match=r"login\.tickets_ended"):
            ended.tell(verb, {})
        ended.tell("stop", {"target": 1})
        assert far.next()[0]["verb"] == "stop"
        assert ended.alive
    finally:
        ended.close()
        far.close()


def test_a_script_that_runs_when_the_tickets_end_comes_to_its_own_end() -> None:
    ours, theirs = socket.socketpair()
    far = Peer(theirs)
    made = AgentConnection(SocketPipe(ours), ends=datetime.now(UTC) + timedelta(hours=1))
    try:
        running = LoginSession(made).run(b"true", env={})
        number = far.next()[0]["id"]
        made._ends = datetime.now(UTC)  # an hour later
        far.say({"id": number, "event": "output"}, b"late")
        far.say({"id": number, "event": "done", "exit_code": 3})
        assert b"".join(running) == b"late"
        assert running.exit.exit_code == 3
    finally:
        made.close()
        far.close()
