"""How often somebody may do something: a token bucket for each name, in memory.

Kept as the one number that the generic cell rate algorithm needs (ITU-T I.371, annex A.1): when it will be full again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

MOST_NAMES: Final = 10_000
"""Beyond this, names that are new share one bucket, so that memory has a bound and nobody gets a bucket too many."""

_NEWCOMERS: Final = ""


class TokenBuckets:
    """Buckets that are full at first. Safe in threads."""

    def __init__(
        self,
        burst: int,
        per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_names: int = MOST_NAMES,
    ) -> None:
        """Take how many tokens a bucket holds, and how many come back in a second."""
        self._each = 1 / per_second
        self._depth = burst * self._each
        self._clock = clock
        self._most = most_names
        self._lock = threading.Lock()
        self._full_at: dict[str, float] = {}

    def take(self, name: str) -> bool:
        """Take a token out of somebody's bucket; False where it is empty, and then nothing changes."""
        with self._lock:
            now = self._clock()
            name = self._counted(name, now)
            full_at = max(self._full_at.get(name, now), now) + self._each
            # What many sums lose to rounding must not cost a whole token.
            if full_at - now > self._depth + self._each * 1e-3:
                return False
            self._full_at[name] = full_at
            return True

    def _counted(self, name: str, now: float) -> str:
        """Say by which name to count; buckets that are full again are as good as those that never were."""
        if name not in self._full_at and len(self._full_at) >= self._most:
            self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
            if len(self._full_at) >= self._most:
                return _NEWCOMERS
        return name
