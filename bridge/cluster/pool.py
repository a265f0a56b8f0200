"""One connection for each (account, login node), shared by all runs of that account and closed when nobody uses it.

A connection is made with some run's tickets, and is retired before the first of them ends: who asks then gets a new
connection, made with fresh tickets, while what runs on the old one comes to its end there. So nobody works longer than
the KDC allowed, and nothing is cut off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from bridge.cluster.node import LoginNode
from bridge.errors import BridgeError, Outage
from bridge.model import Cluster, TicketBundle

IDLE_SECONDS: Final = 60.0
"""A connection that nobody leases is kept this long for the next run of the account."""

RETIRE_BEFORE: Final = timedelta(seconds=30)
"""A connection is not given out in the last seconds of its tickets."""


class Session(LoginNode, Protocol):
    """A LoginNode that is a connection."""

    @property
    def alive(self) -> bool:
        """False once the connection is lost."""
        ...

    @property
    def pending(self) -> int:
        """How many requests are under way."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


Tickets = Callable[[], TicketBundle]
"""Gives tickets that are good now; raises BridgeError."""

Connect = Callable[[Cluster, str, TicketBundle], Session]
"""Connects to the cluster's login node as the account, with the tickets; raises BridgeError."""

Key = tuple[str, str]


@dataclass(slots=True)
class _Slot:
    """What there is for one (cluster, account)."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while connecting, so that a hundred runs of one account make one connection."""
    session: Session | None = None
    retire_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    leases: int = 0
    idle_since: float = 0.0
    retired: list[Session] = field(default_factory=list)


class Lease:
    """A run's hold on the connection of its account; ``close`` it when the run is over."""

    def __init__(self, pool: LoginPool, cluster: Cluster, account: str, tickets: Tickets) -> None:
        self._pool = pool
        self._cluster = cluster
        self._account = account
        self._tickets = tickets
        self._closed = False

    @property
    def node(self) -> LoginNode:
        """A live connection, made now if need be; raises BridgeError. Ask anew for each thing to do."""
        return self._pool._session(self._cluster, self._account, self._tickets)  # noqa: SLF001 - two halves of one thing

    def close(self) -> None:
        """Let go; again is harmless."""
        if not self._closed:
            self._closed = True
            self._pool._release((self._cluster.name, self._account))  # noqa: SLF001 - two halves of one thing


class LoginPool:
    """Keeps the connections. Safe in threads; ``sweep`` it every few seconds and ``close`` it at the end."""

    def __init__(self, connect: Connect, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._connect = connect
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._slots: dict[Key, _Slot] = {}
        self._closed = False

    def lease(self, cluster: Cluster, account: str, tickets: Tickets) -> Lease:
        """Hold the account's connection to a cluster; it is made at the first use."""
        with self._lock:
            self._slots.setdefault((cluster.name, account), _Slot()).leases += 1
        return Lease(self, cluster, account, tickets)

    def disconnect(self, account: str) -> None:
        """Close every connection of an account at once, as when it is blocked; what runs over them fails."""
        with self._lock:
            slots = [slot for (_, name), slot in self._slots.items() if name == account]
        for slot in slots:
            _close_all(slot)

    def sweep(self) -> None:
        """Close what is idle for too long or retired and done."""
        now = time.monotonic()
        with self._lock:
            slots = list(self._slots.items())
        for key, slot in slots:
            _close_done(slot)
            with self._lock:
                if slot.leases == 0 and now - slot.idle_since >= self._idle_seconds and not slot.retired:
                    self._slots.pop(key, None)
                else:
                    continue
            _close_all(slot)

    def close(self) -> None:
        """Close everything; nothing is connected any more."""
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
        for slot in slots:
            _close_all(slot)

    def _session(self, cluster: Cluster, account: str, tickets: Tickets) -> Session:
        with self._lock:
            if self._closed:
                raise _stopping()
            slot = self._slots.setdefault((cluster.name, account), _Slot())
        with slot.lock:
            if slot.session is not None and not (slot.session.alive and datetime.now(UTC) < slot.retire_at):
                slot.retired.append(slot.session)
                slot.session = None
            if slot.session is None:
                bundle = tickets()
                slot.session = self._connect(cluster, account, bundle)
                slot.retire_at = bundle.end - RETIRE_BEFORE
            return slot.session

    def _release(self, key: Key) -> None:
        with self._lock:
            slot = self._slots.get(key)
            if slot is not None:
                slot.leases -= 1
                slot.idle_since = time.monotonic()


def _close_done(slot: _Slot) -> None:
    with slot.lock:
        done = [session for session in slot.retired if not (session.alive and session.pending)]
        slot.retired = [session for session in slot.retired if session not in done]
    for session in done:
        session.close()


def _close_all(slot: _Slot) -> None:
    with slot.lock:
        sessions = [*slot.retired, *([slot.session] if slot.session is not None else [])]
        slot.retired, slot.session = [], None
    for session in sessions:
        session.close()


def _stopping() -> BridgeError:
    return Outage("login.stopping", "The bridge is about to stop.", "Retry the job.")
