"""What the checks of a realm compare it with: the settings and the policy bundle, as full principal names."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.doctor.remedies import Remedies
from bridge.model import Cluster
from bridge.policy.bundle import Bundle
from bridge.settings import Broker


@dataclass(frozen=True, slots=True)
class Site:
    """One realm with the bridge's place in it."""

    realm: str
    bridge: str
    """The bridge's principal, with realm."""
    keytab: str
    http_service: str
    """With realm."""
    http_keytab: str
    clusters: tuple[Cluster, ...]
    uid_floor: int
    """The bounds of accounts.toml and of the broker's own settings together: a job has to pass both."""
    denied_users: frozenset[str]
    denied_groups: frozenset[str]
    longest_minutes: int
    """The longest life of tickets that any limit allows."""
    remedies: Remedies

    @classmethod
    def of(cls, broker: Broker, bundle: Bundle, remedies: Remedies) -> Site:
        """Put it together from the settings and the policies."""
        return cls(
            realm=broker.realm,
            bridge=f"{broker.principal}@{broker.realm}",
            keytab=str(broker.keytab),
            http_service=f"{broker.http_service}@{broker.realm}",
            http_keytab=str(broker.http_keytab),
            clusters=tuple(bundle.clusters.by_name.values()),
            uid_floor=max(broker.uid_floor, bundle.accounts.floor_uid),
            denied_users=bundle.accounts.denied_users.union(broker.denied_users),
            denied_groups=bundle.accounts.denied_groups.union(broker.denied_groups),
            longest_minutes=max((limits.ticket_minutes for limits in bundle.limits.values()), default=0),
            remedies=remedies,
        )

    @property
    def needed(self) -> tuple[str, ...]:
        """The services that clusters.toml needs, with realm: exactly what the delegation list should have."""
        return tuple(sorted({self.full(name) for cluster in self.clusters for name in targets_of(cluster)}))

    def full(self, name: str) -> str:
        """A principal of this realm, with realm."""
        return f"{name}@{self.realm}"


def targets_of(cluster: Cluster) -> tuple[str, ...]:
    """Every service of a cluster that tickets are asked for, without realm, each once."""
    return tuple(dict.fromkeys((*cluster.ssh_targets, *cluster.login_targets, *cluster.node_targets)))
