"""The run's tickets on the login node: on whichever node its connection is to, and good for what comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from bridge.cluster.node import LoginNode
from bridge.errors import BridgeError
from bridge.model import Grant, TicketBundle
from bridge.runs.places import login_ccache

RENEW_SHARE: Final = 3
"""Tickets are put anew once less than a third of their life is left: the queue may have taken the rest."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Placed:
    """Which tickets a run's stages find on a login node."""

    host: str
    bundle: TicketBundle
    login_until: datetime | None
    """How long the person's own login there is good, if there is one: then that stays, and serves in their place."""

    @property
    def end(self) -> datetime:
        """Until when the tickets there are good."""
        return self.login_until or self.bundle.end


class LoginTickets:
    """Puts a run's tickets where its stages run. For one thread at a time, as the stages of a run are."""

    def __init__(
        self,
        grant: Grant,
        fetch: Callable[[], TicketBundle],
        on_login: Callable[[Placed], None] = lambda _: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take ``fetch``, which gives fresh tickets for the login node; raises BridgeError.

        ``on_login`` is told, once for each, of a login of the person's that was found in the tickets' place.
        """
        self._grant = grant
        self._fetch = fetch
        self._on_login = on_login
        self._clock = clock
        self._placed: Placed | None = None
        self._renew_at: datetime | None = None

    def put(self, node: LoginNode) -> Placed | None:
        """Put fresh tickets there; gives None where policy lists none for the login node. Raises BridgeError."""
        if not self._grant.cluster.login_targets:
            return None
        host = node.hello().host
        bundle = self._fetch()
        before, now = self._placed, self._clock()
        self._placed = placed = Placed(host, bundle, node.put_tickets(login_ccache(self._grant), bundle.ccache))
        self._renew_at = min(bundle.end - (bundle.end - now) / RENEW_SHARE, placed.end)
        if placed.login_until is not None and (before is None or before.login_until != placed.login_until):
            self._on_login(placed)
        return placed

    def follow(self, node: LoginNode) -> None:
        """Put tickets there if the run's connection has moved to another login node, or those there end soon.

        Raises BridgeError, but not while tickets that are there already are good still.
        """
        placed, now = self._placed, self._clock()
        moved = placed is None or (len(self._grant.cluster.login_names) > 1 and node.hello().host != placed.host)
        if not moved and self._renew_at is not None and now < self._renew_at:
            return
        try:
            self.put(node)
        except BridgeError as error:
            if moved or placed is None or now >= placed.end:
                raise
            log.info("login_tickets.kept", code=error.code)
