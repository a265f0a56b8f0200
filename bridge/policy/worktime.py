"""How long one piece of work about a bundle may take: a thread can't be stopped, so that work looks at the time itself.

Who begins the work sets the time with ``within``; its loops call ``tick``. Without a time set, as in commands that
somebody runs for themselves and in the broker, nothing ever ends early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ends: ContextVar[tuple[float, Callable[[], float]] | None] = ContextVar("ends", default=None)
"""Of the thread's work: the moment, and the clock that it is by."""


class OutOfTimeError(Exception):
    """The work has taken too long. No BridgeError, as no rule of the policy says so."""


@contextmanager
def within(seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Let ``tick`` raise OutOfTimeError in this block once so many seconds are over."""
    token = _ends.set((clock() + seconds, clock))
    try:
        yield
    finally:
        _ends.reset(token)


def tick() -> None:
    """Return while there is time; raises OutOfTimeError."""
    found = _ends.get()
    if found is not None and found[1]() >= found[0]:
        raise OutOfTimeError
