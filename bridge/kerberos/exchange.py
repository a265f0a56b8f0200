"""Asks the realm's KDCs, within bounds: at most so long, so many at once, and not at all while nobody answers there.

One ``Exchange`` is shared by all that act as the bridge's principal, so that one caller's silence spares the others
the wait. It decides nothing about names: ``impersonation`` has done that before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import krb5

from bridge.errors import BridgeError, Outage
from bridge.kerberos import bundle
from bridge.kerberos.breaker import Breaker, Open
from bridge.kerberos.clock import kdc_ahead_seconds
from bridge.kerberos.deadline import Deadline, Late
from bridge.kerberos.delegation import Delegation
from bridge.kerberos.faults import Step, fault, is_silence, may_be_our_ticket, unreachable
from bridge.kerberos.initial import InitialTickets
from bridge.kerberos.kdcs import KdcOrder
from bridge.model import TicketBundle

SILENT_SECONDS: Final = 0.25
"""From here on, waiting for nothing is what the breaker is for."""
SLOW_SECONDS: Final = 1.0
"""An exchange that takes longer has most likely waited for a KDC that is not there."""
_CLOCK_ALLOWANCE: Final = timedelta(seconds=300)
"""The KDC's clock may differ from ours by this much (MIT's default clockskew) before its tickets look too long."""

_FIRST_SHARE: Final = 0.6
"""Of the whole time, how much the KDCs get in the order that is; the rest is for another order."""


class _OfThread(threading.local):
    """What each thread has of its own."""

    def __init__(self, principal: str) -> None:
        self.delegation = Delegation(principal)


class Exchange:
    """The bridge's principal at its KDCs. Safe in threads; holds its TGTs in memory only."""

    def __init__(
        self,
        principal: str,
        keytab: str,
        *,
        deadline: Deadline | None = None,
        breaker: Breaker | None = None,
        order: KdcOrder | None = None,
    ) -> None:
        """Take the bridge's principal with realm, its keytab's path, and who keeps the KDCs in order, if anybody."""
        self.principal = principal
        self._keytab = keytab
        self.initial = InitialTickets(principal, keytab)
        self._deadline = deadline or Deadline()
        self._breaker = breaker or Breaker()
        self._order = order
        self._of_thread = _OfThread(principal)

    def obtain(self, account: str, user: str, servers: Sequence[str], life_seconds: int) -> TicketBundle:
        """Give the tickets of ``user`` for ``servers``, stripped and checked, that end within the life.

        account: whom to name in errors. user, servers: principals with realm. Raises the errors of ``faults`` and of
        ``bundle.strip``.
        """
        probe, began, silent = self._enter(account), time.monotonic(), False
        try:
            return self._insistent(account, lambda: self._ask(account, user, servers, life_seconds), spare=probe)
        except BridgeError as error:
            # Where nobody listens, that is known at once and holds no thread: the next caller may as well try.
            silent = is_silence(error) and time.monotonic() - began > SILENT_SECONDS
            raise
        finally:
            if silent:
                self._breaker.silent(probe=probe)
            else:
                self._breaker.answered()
                if probe:
                    self._deadline.forgive()

    def kdc_ahead_seconds(self) -> float:
        """Give how far the KDC's clock is ahead of ours, from the first KDC that answers; raises as ``clock`` does."""
        first = self._order.first if self._order else ""
        try:
            return kdc_ahead_seconds(self.principal, self._keytab)
        except Outage as error:
            if self._order is None or not is_silence(error) or not self._order.renew(first):
                raise
        return kdc_ahead_seconds(self.principal, self._keytab)

    def _insistent(self, account: str, ask: Callable[[], TicketBundle], *, spare: bool) -> TicketBundle:
        """Ask, and once more where the first KDC in line was silent and another one is not."""
        began, whole = time.monotonic(), self._deadline.seconds
        if self._order is None:
            return self._bounded(account, ask, whole, spare=spare)
        first = self._order.first
        try:
            made = self._bounded(account, ask, whole * _FIRST_SHARE, spare=spare)
        except Outage as error:
            if not is_silence(error) or not self._order.renew(first):
                raise
            self._deadline.forgive()
            return self._bounded(account, ask, began + whole - time.monotonic(), spare=spare)
        if time.monotonic() - began > SLOW_SECONDS:
            self._order.renew_soon(first)
        return made

    def _bounded(self, account: str, ask: Callable[[], TicketBundle], seconds: float, *, spare: bool) -> TicketBundle:
        try:
            return self._deadline.run(ask, seconds=max(0.0, seconds), spare=spare)
        except Late as late:
            raise unreachable(account, str(late)) from None

    def _enter(self, account: str) -> bool:
        try:
            return self._breaker.enter()
        except Open as closed:
            raise unreachable(account, str(closed)) from None

    def _ask(self, account: str, user: str, servers: Sequence[str], life_seconds: int) -> TicketBundle:
        """Ask the KDC and check what came in the same thread, whose caches of the processor have all of it."""
        not_after = datetime.now(UTC) + timedelta(seconds=life_seconds) + _CLOCK_ALLOWANCE
        data = self._delegated(account, user, servers, life_seconds)
        return bundle.strip(data, user, servers, not_after)

    def _delegated(self, account: str, user: str, servers: Sequence[str], life_seconds: int) -> bytes:
        delegate = self._of_thread.delegation.delegate
        try:
            ticket = self.initial.get(life_seconds)
            try:
                return delegate(ticket, account, user, servers)
            except Outage as error:
                if not may_be_our_ticket(error):
                    raise
                # A TGT goes bad early where krbtgt gets a new key, a KDC an older database, or we the right time.
                self.initial.forget(ticket)
            return delegate(self.initial.get(life_seconds), account, user, servers)
        except krb5.Krb5Error as error:
            raise fault(Step.INITIAL, error.err_code, str(error), account) from error
