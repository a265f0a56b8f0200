"""The run's tickets on the login node: on whichever node its connection is to, and no other gets them."""

from __future__ import annotations

from collections.abc import Callable

from bridge.cluster.node import LoginNode
from bridge.model import Grant, TicketBundle
from bridge.runs.places import login_ccache


class LoginTickets:
    """Puts a run's tickets where its stages run. For one thread at a time, as the stages of a run are."""

    def __init__(self, grant: Grant, fetch: Callable[[], TicketBundle]) -> None:
        """Take ``fetch``, which gives fresh tickets for the login node; raises BridgeError."""
        self._grant = grant
        self._fetch = fetch
        self._host: str | None = None

    def put(self, node: LoginNode) -> TicketBundle | None:
        """Put fresh tickets there; gives None where policy lists none for the login node. Raises BridgeError."""
        if not self._grant.cluster.login_targets:
            return None
        host = node.hello().host
        bundle = self._fetch()
        node.put_tickets(login_ccache(self._grant), bundle.ccache)
        self._host = host
        return bundle

    def follow(self, node: LoginNode) -> None:
        """Put tickets there if the run's connection has moved to another login node; raises BridgeError."""
        cluster = self._grant.cluster
        if len(cluster.login_names) > 1 and cluster.login_targets and node.hello().host != self._host:
            self.put(node)
