"""What a stage has to tell its executor, kept until the executor says that it has it.

A thread of the stage writes, the executor's HTTP request reads. Each frame has a number; asking for frames after N lets
go of all up to N, so a lost connection loses nothing and repeats nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, Final

from bridge.errors import BridgeError
from runner import wire

HOLD_BYTES: Final = 1024 * 1024
"""How much a writer may be ahead of the executor; beyond it the writer waits, and the log waits in its file."""

TAIL_BYTES: Final = 8 * 1024
"""How much of a stage's log is kept for operators to look at, whatever its executor has read."""

REPLY_BYTES: Final = 1024 * 1024
"""One reply to the executor is closed after this many bytes."""


def outcome_of(error: BridgeError) -> wire.Outcome:
    """Return how a stage ends by an error of ours: refused, or an outage that the runner may retry."""
    return wire.Outcome.REFUSED if 400 <= error.status < 500 else wire.Outcome.OUTAGE


class FeedClosed(Exception):
    """Nobody listens any more: this process lets go of the stage."""


class Feed:
    """The numbered frames of one stage; the last has kind ``end``."""

    def __init__(self, first: int = 0) -> None:
        """Number frames from ``first`` + 1 on: where the executor of a stage that is taken up again has got to."""
        self._changed = threading.Condition()
        self._frames: deque[tuple[int, bytes]] = deque()
        self._held = 0
        self._last = first
        self._ended = False
        self._closed = False
        self._unread = False
        self._tail = b""
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def log(self, data: bytes) -> bool:
        """Add bytes of the job log; waits while the executor is far behind; raises FeedClosed.

        Returns False where the bytes were dropped, as the executor will not come for them.
        """
        with self._changed:
            while self._held >= HOLD_BYTES and not (self._closed or self._ended or self._unread):
                self._changed.wait()
            if self._closed:
                raise FeedClosed
            self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            if data and not (self._ended or self._unread):
                self._append({"kind": "log"}, data)
            return not self._unread

    def note(self, text: str, section: dict[str, str] | None = None) -> None:
        """Add a line that the bridge itself has to say, opening or closing a section of the log if given."""
        with self._changed:
            if self._closed:
                raise FeedClosed
            if not self._ended:
                self._append({"kind": "note", "text": text} | ({"section": section} if section else {}), b"")

    def end(self, outcome: wire.Outcome, exit_code: int | None = None, error: dict[str, str] | None = None) -> None:
        """Add the last frame; a second end is ignored, so that a cancel and an exit may race."""
        with self._changed:
            if self._ended:
                return
            header = {"kind": "end", "outcome": outcome.value, "exit_code": exit_code, "error": error}
            self._append(header, b"")
            self._ended = True

    def fail(self, error: BridgeError, reference: str) -> None:
        """End with an error of ours: refused, or an outage that the runner may retry."""
        public = {"code": error.code, "title": error.title, "remedy": error.remedy, "reference": reference}
        self.end(outcome_of(error), None, public)

    def abandon(self) -> None:
        """Free whoever waits to write to the log, and drop the rest of it: the executor will not come for it."""
        with self._changed:
            self._unread = True
            self._wake()

    def close(self) -> None:
        """Wake and turn away whoever writes or reads."""
        with self._changed:
            self._closed = True
            self._wake()

    @property
    def tail(self) -> bytes:
        """The last bytes of the log, from the beginning of a line where some of it is cut off."""
        with self._changed:
            tail = self._tail
        return tail if len(tail) < TAIL_BYTES else tail.partition(b"\n")[2]

    @property
    def ended(self) -> bool:
        """True once the last frame is written."""
        return self._ended

    def take(self, after: int) -> tuple[bytes, bool]:
        """Return frames numbered over ``after`` (at most about REPLY_BYTES) and whether the last is among them."""
        with self._changed:
            while self._frames and self._frames[0][0] <= after:
                self._held -= len(self._frames.popleft()[1])
            self._changed.notify_all()
            out, size = [], 0
            for _, frame in self._frames:
                out.append(frame)
                size += len(frame)
                if size >= REPLY_BYTES:
                    break
            complete = (self._ended and len(out) == len(self._frames)) or self._closed
            return b"".join(out), complete

    async def wait(self, after: int, seconds: float) -> bytes:
        """Return frames after ``after``, waiting up to ``seconds`` for the first; empty if there is none by then."""
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        with self._changed:
            self._waiters.add(waiter)
        try:
            body, complete = self.take(after)
            if not body and not complete:
                try:
                    await asyncio.wait_for(event.wait(), seconds)
                except TimeoutError:
                    return b""
                body, _ = self.take(after)
            return body
        finally:
            with self._changed:
                self._waiters.discard(waiter)

    def _append(self, header: dict[str, Any], data: bytes) -> None:
        self._last += 1
        frame = wire.encode({"n": self._last} | header, data)
        self._frames.append((self._last, frame))
        self._held += len(frame)
        self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        for loop, event in self._waiters:
            loop.call_soon_threadsafe(event.set)
