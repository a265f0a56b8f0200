"""Bounds the time of calls into libkrb5, which before 1.22 has no setting for how long it may try.

A call that is late is given up, not stopped: its thread runs on until libkrb5 itself gives up, and holds one of the
slots until then. A KDC that does not answer so costs at most ``slots`` threads, and few of those once ``breaker`` has
opened; the call that tries whether it is back needs no slot, since all may be held by calls that are stuck.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from bridge.crew import Crew

_T = TypeVar("_T")

DEFAULT_SECONDS: Final = 4.5
"""Under the 5 s of T24, with room for what surrounds the call."""
DEFAULT_SLOTS: Final = 64


class Late(Exception):
    """The call did not come back in time, or no slot became free for it."""


class Deadline:
    """Runs calls in threads of its own, each at most ``seconds`` long and at most ``slots`` at once.

    Threads are kept for the next call: a new one costs a quarter of an S4U exchange.
    """

    def __init__(self, seconds: float = DEFAULT_SECONDS, slots: int = DEFAULT_SLOTS) -> None:
        self.seconds = seconds
        self._most = slots
        self._slots = threading.BoundedSemaphore(slots)
        self._crew = Crew("krb5-call")

    def run(self, call: Callable[[], _T], *, seconds: float | None = None, spare: bool = False) -> _T:
        """Give what ``call`` gives, raise what it raises, or raise Late.

        seconds: less time than this Deadline's own. A ``spare`` call waits for no slot.
        """
        bound = self.seconds if seconds is None else min(seconds, self.seconds)
        end = time.monotonic() + bound
        slots = None if spare else self._slots
        if slots is not None and not slots.acquire(timeout=bound):
            raise Late("all slots are held by calls that do not come back")
        answer: _Answer[_T] = _Answer(call, slots)
        self._crew.start(answer.find, answer.give)
        return answer.wait(end - time.monotonic(), bound)

    def forgive(self) -> None:
        """Give all slots anew: what is stuck waits for a KDC that was silent, and one that answers has been found."""
        self._slots = threading.BoundedSemaphore(self._most)


class _Answer(Generic[_T]):
    """What one call came to, and the slot that it holds.

    A lock lets go of whoever waits: ``queue.SimpleQueue.get`` of CPython 3.11 may wait for ever where its timeout ends
    between two of its steps.
    """

    def __init__(self, call: Callable[[], _T], slots: threading.BoundedSemaphore | None) -> None:
        self._call = call
        self._slots = slots
        self._value: _T | None = None
        self._error: BaseException | None = None
        self._given = threading.Lock()
        self._given.acquire()

    def find(self) -> None:
        """Make the call, on a thread of the crew."""
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that asked
            self._error = error

    def give(self) -> None:
        """Free the slot, and let go of whoever waits."""
        if self._slots is not None:
            self._slots.release()
        self._given.release()

    def wait(self, seconds: float, bound: float) -> _T:
        """Give what the call gives, or raise what it raises; raises Late."""
        if not self._given.acquire(timeout=max(0.0, seconds)):
            raise Late(f"no answer within {bound:.1f} s")
        if self._error is not None:
            raise self._error
        return cast("_T", self._value)
