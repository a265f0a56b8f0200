"""Which login node is tried first, and which ones are left alone for a while.

A node that is down, drains or has a broken keytab rests for everybody; one that refuses an account rests for that
account only, or whoever is locked out would take the node from all others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

REST_SECONDS: Final = 60.0
"""How long a node that failed is not tried while another one can be."""

_EVERYBODY: Final = ""


class Rota:
    """Remembers how the login nodes did. Safe in threads."""

    def __init__(self, *, rest_seconds: float = REST_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest_seconds = rest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._resting: dict[tuple[str, str], float] = {}
        self._home: dict[tuple[str, str], str] = {}

    def order(self, cluster: str, account: str, hosts: Sequence[str]) -> list[str]:
        """Give all of ``hosts`` in the order in which to try them.

        The account's last node comes first, since its tickets and processes are there, then the others as listed.
        Those that rest come last, the one that has rested longest before the others: if nothing else is left, even
        they are tried, so that an outage of all heals by itself.
        """
        with self._lock:
            now, home = self._clock(), self._home.get((cluster, account))
            until = {host: self._until(host, account, now) for host in hosts}
        awake = [host for host in hosts if until[host] <= now]
        awake.sort(key=lambda host: host != home)
        return awake + sorted((host for host in hosts if until[host] > now), key=lambda host: until[host])

    def worked(self, cluster: str, account: str, host: str) -> None:
        """Note that the account is on this node now."""
        with self._lock:
            self._resting.pop((host, _EVERYBODY), None)
            self._resting.pop((host, account), None)
            self._home[cluster, account] = host

    def failed(self, host: str) -> None:
        """Let a node rest for everybody."""
        self._rest(host, _EVERYBODY)

    def refused(self, host: str, account: str) -> None:
        """Let a node rest for one account."""
        self._rest(host, account)

    def _rest(self, host: str, whom: str) -> None:
        with self._lock:
            now = self._clock()
            self._resting = {key: until for key, until in self._resting.items() if until > now}
            self._resting[host, whom] = now + self._rest_seconds

    def _until(self, host: str, account: str, now: float) -> float:
        return max(self._resting.get((host, whom), now) for whom in (_EVERYBODY, account))
