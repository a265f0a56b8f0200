"""The run's tickets on the login node: on whichever node its connection is to, and good for what comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from bridge.cluster.node import LoginNode
from bridge.errors import BridgeError, Outage
from bridge.model import Grant, TicketBundle
from bridge.runs.places import login_ccache
from runner.renewal import renew_at

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
    """Puts a run's tickets where its stages run, one bundle at a time whoever asks. Safe in threads."""

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
        self._lock = threading.Lock()
        self._placed: Placed | None = None
        self._renew_at: datetime | None = None

    @property
    def placed(self) -> Placed | None:
        """What was put last; None before that."""
        return self._placed

    @property
    def end_soon(self) -> bool:
        """Whether there are tickets that are to be replaced now: no more than a third of their life is left."""
        return self._renew_at is not None and self._clock() >= self._renew_at

    def put(self, node: LoginNode) -> Placed | None:
        """Put fresh tickets there; gives None where policy lists none for the login node. Raises BridgeError."""
        with self._lock:
            return self._put(node)

    def follow(self, node: LoginNode) -> None:
        """Put tickets there if the run's connection has moved to another login node, or those there end soon.

        Raises BridgeError, but not while tickets that are there already are good still.
        """
        with self._lock:
            placed, now = self._placed, self._clock()
            moved = placed is None or (len(self._grant.cluster.login_names) > 1 and node.hello().host != placed.host)
            if not moved and not self.end_soon:
                return
            try:
                self._put(node)
            except BridgeError as error:
                if moved or placed is None or now >= placed.end:
                    raise
                log.info("login_tickets.kept", code=error.code)

    def renew(self, node: LoginNode) -> None:
        """Put fresh tickets in the place of those that a stage works with, if they end soon. Raises BridgeError.

        Outage ``login.elsewhere`` where ``node`` is another login node, on which they would be of no use to the stage.
        """
        with self._lock:
            if self._placed is None or not self.end_soon:
                return
            if node.hello().host != self._placed.host:
                raise _elsewhere()
            self._put(node)

    def _put(self, node: LoginNode) -> Placed | None:
        if not self._grant.cluster.login_targets:
            return None
        host = node.hello().host
        bundle = self._fetch()
        before, now = self._placed, self._clock()
        placed = Placed(host, bundle, node.put_tickets(login_ccache(self._grant), bundle.ccache))
        if placed.login_until is not None and (before is None or before.login_until != placed.login_until):
            # First, so that a login that could not be put on record is found anew and told of at the next try.
            self._on_login(placed)
        self._placed = placed
        soon = datetime.fromtimestamp(renew_at(now.timestamp(), bundle.end.timestamp()), UTC)
        self._renew_at = min(soon, placed.end)
        return placed


def _elsewhere() -> Outage:
    return Outage(
        "login.elsewhere",
        "The bridge's connection is to another login node than the one on which the stage runs.",
        "Nothing: it is tried again; the stage keeps the tickets that it has until they end.",
    )
