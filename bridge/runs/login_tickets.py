"""The run's tickets on the login node: on whichever node its connection is to, and good for what comes."""

from __future__ import annotations

from collections.abc import Callable
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


class LoginTickets:
    """Puts a run's tickets where its stages run. For one thread at a time, as the stages of a run are."""

    def __init__(
        self,
        grant: Grant,
        fetch: Callable[[], TicketBundle],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take ``fetch``, which gives fresh tickets for the login node; raises BridgeError."""
        self._grant = grant
        self._fetch = fetch
        self._clock = clock
        self._host: str | None = None
        self._renew_at: datetime | None = None
        self._end: datetime | None = None

    def put(self, node: LoginNode) -> TicketBundle | None:
        """Put fresh tickets there; gives None where policy lists none for the login node. Raises BridgeError."""
        if not self._grant.cluster.login_targets:
            return None
        host = node.hello().host
        bundle = self._fetch()
        node.put_tickets(login_ccache(self._grant), bundle.ccache)
        now = self._clock()
        self._host, self._end, self._renew_at = host, bundle.end, bundle.end - (bundle.end - now) / RENEW_SHARE
        return bundle

    def follow(self, node: LoginNode) -> None:
        """Put tickets there if the run's connection has moved to another login node, or those there end soon.

        Raises BridgeError, but not while tickets that are there already are good still.
        """
        if not self._grant.cluster.login_targets:
            return
        moved = self._host is None or (len(self._grant.cluster.login_names) > 1 and node.hello().host != self._host)
        now = self._clock()
        if not moved and self._renew_at is not None and now < self._renew_at:
            return
        try:
            self.put(node)
        except BridgeError as error:
            if moved or self._end is None or now >= self._end:
                raise
            log.info("login_tickets.kept", code=error.code)
