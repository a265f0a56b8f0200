"""The ticket bundles that web holds for a run, read as strictly as the broker wrote them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from bridge.broker.client import BrokerClient
from bridge.kerberos.bundle import verify_bundle
from bridge.model import Grant, Run, TicketBundle

USE_WHILE_LEFT: Final = timedelta(minutes=2)
"""A bundle that ends sooner is not used for a new connection; a fresh one is fetched."""

CLOCK_ALLOWANCE: Final = timedelta(minutes=5)
"""The KDC's clock may be ahead of ours by MIT's default clockskew."""


class RunTickets:
    """Gives tickets for SSH that are good now: those of the admission while they last, then fresh ones."""

    def __init__(self, broker: BrokerClient, run: Run, session: str, bundle: TicketBundle | None) -> None:
        self._broker = broker
        self._run = run
        self._session = session
        self._bundle = bundle
        self.ending = False
        """Whether they are for the end of the run only, which a kill switch leaves possible."""

    def __call__(self) -> TicketBundle:
        bundle = self._bundle
        if bundle is None or bundle.end - datetime.now(UTC) < USE_WHILE_LEFT:
            use = "end" if self.ending else "ssh"
            _, ccache = self._broker.ask("tickets", run_id=self._run.run_id, session=self._session, use=use)
            grant = self._run.grant
            self._bundle = bundle = read_bundle(grant, ccache, grant.cluster.ssh_targets)
        return bundle


def read_bundle(grant: Grant, ccache: bytes, targets: list[str] | tuple[str, ...]) -> TicketBundle:
    """Read a bundle that came from the broker, as strictly as the broker did; raises Defect."""
    realm = grant.cluster.realm
    not_after = datetime.now(UTC) + timedelta(minutes=grant.limits.ticket_minutes) + CLOCK_ALLOWANCE
    return verify_bundle(
        ccache, f"{grant.account.name}@{realm}", [f"{target}@{realm}" for target in targets], not_after
    )
