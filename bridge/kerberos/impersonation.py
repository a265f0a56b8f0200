"""Gets service tickets in a person's name: may it be asked, ask the KDC, strip and check what came.

Whatever is a person's is in caches in memory that belong to one call; the bridge's TGT is never written to a file. The
facts behind each step (what an S4U cache holds, why the TGT sets the life, why names are compared) were measured; see
``delegation``, ``bundle`` and ``initial``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Protocol

from bridge.errors import PolicyRefused, RequestRefused
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.guard import Guard
from bridge.kerberos.targets import account_principal, checked_realm, target_principal
from bridge.model import TicketBundle

MIN_LIFE_SECONDS: Final = 60
MAX_LIFE_SECONDS: Final = 7 * 24 * 3600
MAX_TARGETS: Final = 32


class Impersonator(Protocol):
    """What admission needs of Kerberos."""

    def tickets(self, account: str, uid: int, targets: Sequence[str], lifetime_seconds: int) -> TicketBundle:
        """Give tickets of ``account`` for ``targets`` (``service/host``, no realm) that end within the lifetime.

        ``uid`` is what the account had when it was decided that somebody may be it, and must have still. Raises
        PolicyRefused or RequestRefused where account or target may not be, Outage where the KDC is not there, Defect
        where the result broke a rule.
        """
        ...


class Impersonation:
    """Impersonator with the bridge's own principal. Safe in threads; holds no ticket of anybody."""

    def __init__(self, exchange: Exchange, realm: str, targets: Container[str], guard: Guard) -> None:
        """Take every target that any cluster lists, and who looks at the account behind a name.

        ``targets`` is asked each time, as the policy that lists them changes.
        """
        self._exchange = exchange
        self._realm = checked_realm(realm)
        self._targets = targets
        self._guard = guard

    def tickets(self, account: str, uid: int, targets: Sequence[str], lifetime_seconds: int) -> TicketBundle:
        """See Impersonator.tickets. What may not be asked never reaches the directory, let alone the KDC."""
        user = account_principal(account, self._realm)
        servers = self._servers(targets)
        if not MIN_LIFE_SECONDS <= lifetime_seconds <= MAX_LIFE_SECONDS:
            raise _bad_life(lifetime_seconds)
        self._guard.require_ordinary(account, uid)
        return self._exchange.obtain(account, user, servers, lifetime_seconds)

    def _servers(self, targets: Sequence[str]) -> tuple[str, ...]:
        if not 0 < len(targets) <= MAX_TARGETS or len(set(targets)) != len(targets):
            raise _bad_targets(len(targets))
        return tuple(self._listed(target) for target in targets)

    def _listed(self, target: str) -> str:
        """The principal of a target that may be asked for."""
        server = target_principal(target, self._realm)
        # A ticket for the bridge itself is evidence, whatever a cluster lists.
        if target not in self._targets or server == self._exchange.principal:
            raise _target_not_listed(target)
        return server


def _bad_life(seconds: int) -> RequestRefused:
    return RequestRefused(
        "kerberos.lifetime",
        f"Tickets can live from {MIN_LIFE_SECONDS} to {MAX_LIFE_SECONDS} seconds.",
        "Correct ticket_minutes in the limits.",
        asked=seconds,
    )


def _bad_targets(count: int) -> RequestRefused:
    return RequestRefused(
        "kerberos.targets",
        f"Tickets are given for 1 to {MAX_TARGETS} different services at once.",
        "Correct the cluster's list of targets.",
        count=count,
    )


def _target_not_listed(target: str) -> PolicyRefused:
    return PolicyRefused(
        "kerberos.target_not_listed",
        f"No cluster lists the service '{target}'.",
        "Add the service to the cluster's targets if CI jobs are to reach it.",
        target=target,
    )
