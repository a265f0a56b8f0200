"""Stops asking KDCs that do not answer, so that a dead realm costs a few threads and not all of them (T24).

Closed, every caller passes. After some silences in a row it opens: callers are refused at once. After a pause one
caller passes as the probe, while all others are still refused; any answer of a KDC, a refusal included, closes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

SILENCES: Final = 3
"""One call may be lost to a busy KDC or a cut connection; three in a row, with no answer between, are an outage."""

PAUSE_SECONDS: Final = 2.0
"""With the longest call before it, a KDC that is back is found again in less than 7 s."""


class Open(Exception):
    """The KDCs have not answered lately, and it is not this caller's turn to try."""


class Breaker:
    """The state that all callers of one realm share. Safe in threads."""

    def __init__(
        self,
        silences: int = SILENCES,
        pause_seconds: float = PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = silences
        self._pause = pause_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._silences = 0
        self._next_probe = 0.0
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Tell whether callers are refused at the moment."""
        with self._lock:
            return self._silences >= self._most

    def enter(self) -> bool:
        """Let a caller pass, who then calls ``answered`` or ``silent``; raises Open. True is the probe's pass."""
        with self._lock:
            if self._silences < self._most:
                return False
            if self._probing or self._clock() < self._next_probe:
                raise Open("no KDC has answered lately")
            self._probing = True
            return True

    def answered(self) -> None:
        """Note that a KDC answered, whatever it said."""
        with self._lock:
            self._silences = 0
            self._probing = False

    def silent(self, *, probe: bool) -> None:
        """Note that no KDC answered one caller; ``probe`` is what ``enter`` gave."""
        with self._lock:
            self._silences += 1
            self._next_probe = self._clock() + self._pause
            if probe:
                self._probing = False
