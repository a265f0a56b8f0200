"""What one thread is to hear from others, in the order in which it was said."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

_T = TypeVar("_T")


class News(Generic[_T]):
    """A queue without a bound. ``queue.Queue`` would do, and is thrice as large: there is one for each run."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._untold: deque[_T] = deque()

    def put(self, news: _T) -> None:
        """Say something; returns at once."""
        with self._changed:
            self._untold.append(news)
            self._changed.notify()

    def take(self, seconds: float) -> _T | None:
        """Return what was said first, or None where nothing comes for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._untold, seconds):
                return None
            return self._untold.popleft()
