"""Repeats a request that got no answer, for a bounded time and with growing pauses."""

from __future__ import annotations

import time

from runner.executor.failures import CallFailed, Unreachable, outage
from runner.executor.joblog import JobLog

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 3.0


class Patience:
    """Counts how long the bridge has been silent; one for each stage."""

    def __init__(self, log: JobLog, limit_seconds: float) -> None:
        self._log = log
        self._limit = limit_seconds
        self._since: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    def failed(self, error: Unreachable) -> None:
        """Wait before the next attempt; raises CallFailed (outage ``executor.bridge_unreachable``) when time is up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._log.say(f"ci-bridge: {error}; trying again for up to {self._limit:.0f} s")
        left = self._since + self._limit - now
        if left <= 0:
            raise unreachable(error) from error
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def succeeded(self) -> None:
        """Note that the bridge answered."""
        if self._since is not None:
            self._log.say(f"ci-bridge: the bridge answers again after {time.monotonic() - self._since:.0f} s")
        self._since = None
        self._pause = FIRST_PAUSE_SECONDS


def unreachable(error: Unreachable) -> CallFailed:
    """Make the failure for a bridge that stayed silent, or the one that it gave as its reason."""
    return error.failure or outage(
        "executor.bridge_unreachable",
        f"{str(error)[:1].upper()}{str(error)[1:]}.",
        "Nothing is wrong with your script: run the job again later, or tell the administrator.",
    )
