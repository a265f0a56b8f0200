"""Bounds the time of calls into libkrb5, which before 1.22 has no setting for how long it may try.

A call that is late is given up, not stopped: its thread runs on until libkrb5 itself gives up, and holds one of the
slots until then. A KDC that does not answer so costs at most ``slots`` threads, and few of those once ``breaker`` has
opened; the call that tries whether it is back needs no slot, since all may be held by calls that are stuck.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

DEFAULT_SECONDS: Final = 4.5
"""Under the 5 s of T24, with room for what surrounds the call."""
DEFAULT_SLOTS: Final = 64

_SPARE_SECONDS: Final = 10.0
"""How long a thread without work is kept."""

_Answer = tuple[Any, BaseException | None]
_Answers = queue.SimpleQueue[_Answer]
_Work = tuple[Callable[[], Any], _Answers, threading.BoundedSemaphore | None]


class Late(Exception):
    """The call did not come back in time, or no slot became free for it."""


class Deadline:
    """Runs calls in threads of its own, each at most ``seconds`` long and at most ``slots`` at once.

    Threads are kept for the next call: a new one costs a memory arena and a cold start, a quarter of an S4U exchange.
    They are daemons, since one that is stuck in libkrb5 must not keep the process from ending.
    """

    def __init__(self, seconds: float = DEFAULT_SECONDS, slots: int = DEFAULT_SLOTS) -> None:
        self.seconds = seconds
        self._most = slots
        self._slots = threading.BoundedSemaphore(slots)
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, call: Callable[[], _T], *, seconds: float | None = None, spare: bool = False) -> _T:
        """Give what ``call`` gives, raise what it raises, or raise Late.

        seconds: less time than this Deadline's own. A ``spare`` call waits for no slot.
        """
        bound = self.seconds if seconds is None else min(seconds, self.seconds)
        end = time.monotonic() + bound
        slots = None if spare else self._slots
        if slots is not None and not slots.acquire(timeout=bound):
            raise Late("all slots are held by calls that do not come back")
        answers: _Answers = queue.SimpleQueue()
        self._hand_over((call, answers, slots))
        try:
            value, error = answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise Late(f"no answer within {bound:.1f} s") from None
        if error is not None:
            raise error
        result: _T = value
        return result

    def forgive(self) -> None:
        """Give all slots anew: what is stuck waits for a KDC that was silent, and one that answers has been found."""
        self._slots = threading.BoundedSemaphore(self._most)

    def _hand_over(self, work: _Work) -> None:
        with self._lock:
            spare = self._idle > 0
            self._idle -= spare
        self._work.put(work)
        if not spare:
            threading.Thread(target=self._serve, name="krb5-call", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            call, answers, slots = work
            try:
                answer: _Answer = (call(), None)
            except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that asked
                answer = (None, error)
            with self._lock:
                self._idle += 1
            if slots is not None:
                slots.release()
            answers.put(answer)
            del work, call, answers, answer

    def _next(self) -> _Work | None:
        """Give the next call, or None when this thread has been spare for long."""
        while True:
            try:
                return self._work.get(timeout=_SPARE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle > 0:
                        self._idle -= 1
                        return None
