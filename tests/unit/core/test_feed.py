"""The feed: numbered frames that are lost and doubled by no cut, and a writer that can't run ahead of its reader."""

from __future__ import annotations

import asyncio
import threading

import pytest
from bench import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import Outage, PolicyRefused
from bridge.runs.feed import HOLD_BYTES, REPLY_BYTES, Feed, FeedClosed
from runner import wire
from runner.wire import Outcome


def _frames(body: bytes) -> list[tuple[dict[str, object], bytes]]:
    return list(wire.Decoder().feed(body))


def test_frames_are_numbered_from_one() -> None:
    feed = Feed()
    feed.log(b"a")
    feed.note("b", {"start": "c"})
    feed.end(Outcome.OK, 0)
    body, complete = feed.take(0)

    assert complete
    assert _frames(body) == [
        ({"n": 1, "kind": "log"}, b"a"),
        ({"n": 2, "kind": "note", "text": "b", "section": {"start": "c"}}, b""),
        ({"n": 3, "kind": "end", "outcome": "ok", "exit_code": 0, "error": None}, b""),
    ]


def test_a_feed_that_is_taken_up_again_goes_on_counting() -> None:
    feed = Feed(41)
    feed.log(b"a")
    assert [header["n"] for header, _ in _frames(feed.take(41)[0])] == [42]


def test_what_is_acknowledged_is_let_go_of_and_the_rest_is_kept() -> None:
    feed = Feed()
    for _ in range(4):
        feed.log(b"x" * 1000)
    feed.take(3)

    assert feed._held < 1100
    assert [header["n"] for header, _ in _frames(feed.take(0)[0])] == [4]
    feed.take(4)
    assert feed._held == 0
    assert not feed._frames


def test_the_same_frames_come_again_until_they_are_acknowledged() -> None:
    feed = Feed()
    feed.log(b"a")
    assert feed.take(0) == feed.take(0)


def test_one_reply_is_bounded_and_says_that_more_is_to_come() -> None:
    feed = Feed()
    for _ in range(12):
        feed.note("x" * (REPLY_BYTES // 8))
    feed.end(Outcome.OK)
    body, complete = feed.take(0)

    assert not complete
    assert REPLY_BYTES <= len(body) < 2 * REPLY_BYTES
    last = _frames(body)[-1][0]["n"]
    assert isinstance(last, int)
    rest, complete = feed.take(last)
    assert complete
    assert _frames(rest)[-1][0]["kind"] == "end"


def test_the_end_comes_once_and_nothing_after_it() -> None:
    feed = Feed()
    feed.end(Outcome.CANCELLED, 143)
    feed.end(Outcome.OK, 0)
    feed.log(b"late")
    feed.note("late")

    (frame,) = _frames(feed.take(0)[0])
    assert (frame[0]["outcome"], frame[0]["exit_code"]) == ("cancelled", 143)
    assert feed.ended


@pytest.mark.parametrize(
    ("error", "outcome"), [(PolicyRefused("a.b", "T.", "R.", x=1), "refused"), (Outage("c.d", "T.", "R."), "outage")]
)
def test_an_error_is_told_without_its_context(error: PolicyRefused | Outage, outcome: str) -> None:
    feed = Feed()
    feed.fail(error, "REF")
    (frame,) = _frames(feed.take(0)[0])
    assert frame[0]["outcome"] == outcome
    assert frame[0]["error"] == {"code": error.code, "title": "T.", "remedy": "R.", "reference": "REF"}


class _Writer:
    """Writes more than the feed holds, in a thread."""

    def __init__(self, feed: Feed, pieces: int = 40) -> None:
        self.feed, self.pieces = feed, pieces
        self.written = 0
        self.result: BaseException | bool | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for _ in range(self.pieces):
                self.result = self.feed.log(b"x" * (HOLD_BYTES // 8))
                self.written += 1
        except FeedClosed as error:
            self.result = error

    def blocked(self) -> bool:
        """Whether it has come as far as it can."""
        return self.written == 8 and self.feed._held >= HOLD_BYTES and self.thread.is_alive()


def test_a_writer_waits_for_its_reader() -> None:
    feed = Feed()
    writer = _Writer(feed, 20)
    wait_until(writer.blocked)
    writer.thread.join(0.05)
    assert writer.thread.is_alive()

    after, total = 0, 0
    while total < 20 * (HOLD_BYTES // 8):
        for header, data in _frames(feed.take(after)[0]):
            after, total = int(str(header["n"])), total + len(data)
        assert feed._held <= HOLD_BYTES + HOLD_BYTES // 8 + 100
    writer.thread.join(30)
    assert writer.written == 20


def test_notes_and_the_end_never_wait() -> None:
    feed = Feed()
    writer = _Writer(feed)
    wait_until(writer.blocked)
    feed.note("here")
    feed.end(Outcome.OK)
    writer.thread.join(30)
    assert not writer.thread.is_alive()


def test_close_frees_the_writer_with_an_error() -> None:
    feed = Feed()
    writer = _Writer(feed)
    wait_until(writer.blocked)
    feed.close()
    writer.thread.join(30)

    assert isinstance(writer.result, FeedClosed)
    with pytest.raises(FeedClosed):
        feed.note("x")
    with pytest.raises(FeedClosed):
        feed.log(b"x")


def test_abandon_frees_the_writer_and_drops_the_log_but_not_the_end() -> None:
    feed = Feed()
    writer = _Writer(feed)
    wait_until(writer.blocked)
    held = feed._held
    feed.abandon()
    writer.thread.join(30)

    assert writer.result is False
    assert feed._held == held
    feed.end(Outcome.CANCELLED)
    assert _frames(feed.take(8)[0])[-1][0]["kind"] == "end"


def test_wait_wakes_at_the_first_frame() -> None:
    async def scene() -> bytes:
        feed = Feed()
        asyncio.get_running_loop().call_later(0.02, lambda: threading.Thread(target=feed.log, args=(b"a",)).start())
        return await feed.wait(0, 30)

    assert _frames(asyncio.run(scene())) == [({"n": 1, "kind": "log"}, b"a")]


def test_wait_gives_up_with_nothing() -> None:
    async def scene() -> tuple[bytes, int]:
        feed = Feed()
        return await feed.wait(0, 0.02), len(feed._waiters)

    assert asyncio.run(scene()) == (b"", 0)


def test_wait_returns_at_once_when_the_feed_closes() -> None:
    async def scene() -> bytes:
        feed = Feed()
        asyncio.get_running_loop().call_later(0.02, feed.close)
        return await asyncio.wait_for(feed.wait(0, 60), 30)

    assert asyncio.run(scene()) == b""


def test_two_readers_are_woken() -> None:
    async def scene() -> list[bytes]:
        feed = Feed()
        waiting = asyncio.gather(feed.wait(0, 30), feed.wait(0, 30))
        await asyncio.sleep(0)
        feed.note("x")
        return await waiting

    one, two = asyncio.run(scene())
    assert one == two != b""


Event = st.one_of(
    st.tuples(st.just("write"), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("read"), st.just(b"")),
    st.tuples(st.just("cut"), st.integers(0, 200).map(bytes)),
    st.tuples(st.just("restart"), st.just(b"")),
)


@given(st.lists(Event, max_size=60))
@settings(max_examples=300, deadline=None)
def test_reads_cuts_and_restarts_reproduce_the_bytes_exactly(events: list[tuple[str, bytes]]) -> None:
    """The job's file is the truth; a restart begins a new feed at the place that the executor names."""
    file, feed, got, after, passed = bytearray(), Feed(), bytearray(), 0, 0

    def receive(body: bytes) -> None:
        nonlocal after
        for header, data in wire.Decoder().feed(body):
            number = header["n"]
            assert isinstance(number, int)
            if number > after:
                assert number == after + 1
                after = number
                got.extend(data)

    for what, data in [*events, ("read", b"")]:
        if what == "write":
            file += data
        feed.log(bytes(file[passed:]))
        passed = len(file)
        if what == "restart":
            feed, passed = Feed(after), len(got)
            feed.log(bytes(file[passed:]))
            passed = len(file)
        if what in ("read", "cut"):
            body, _ = feed.take(after)
            receive(body if what == "read" else body[: len(data)])
    assert got == file
