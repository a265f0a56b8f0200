"""Which services the bridge may ask the KDC tickets for: those of the policy in force, and of runs admitted before."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from bridge.audit.ledger import Ledger, View
from bridge.errors import Defect
from bridge.model import Cluster, Run
from bridge.seal import GrantSeal
from bridge.ticketing import END_GRACE


@dataclass(frozen=True, slots=True)
class ListedTargets(Container[str]):
    """Every target that a cluster lists; the broker asks the KDC for no other. Safe to use from many threads."""

    clusters: Callable[[], Iterable[Cluster]]
    """Of the bundle in force."""
    ledger: Ledger
    seal: GrantSeal
    clock: Callable[[], datetime]

    def __contains__(self, target: object) -> bool:
        """Whether the policy in force lists it, or a live run was granted it by the policy of its time."""
        if any(target in targets_of(cluster) for cluster in self.clusters()):
            return True
        with self.ledger.read() as view:
            return any(target in targets_of(run.grant.cluster) and self._is_ours(view, run) for run in view.live_runs())

    def _is_ours(self, view: View, run: Run) -> bool:
        """Whether this broker sealed the run, and its time is not over: web can write its row."""
        if self.clock() >= run.not_after + END_GRACE:
            return False
        try:
            self.seal.check(view.sealed_grant(run.run_id), run.not_after)
        except Defect:
            return False
        return True


def targets_of(cluster: Cluster) -> frozenset[str]:
    """The services of a cluster, without realm."""
    return frozenset((*cluster.ssh_targets, *cluster.login_targets, *cluster.node_targets))
