"""Reads ``clusters.toml``: where the bridge sends people, and which services their tickets may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import Field

from bridge.errors import PolicyRefused
from bridge.model import Cluster
from bridge.policy.files import Table, parse_toml
from bridge.policy.names import AbsolutePath, CacheName, HostName, RealmName, RuleName, ServiceName
from bridge.policy.problems import InvalidBundle, Problem

FILE = "clusters.toml"


class _ClusterTable(Table):
    realm: RealmName
    login_host: HostName
    login_port: int = Field(ge=1, le=65535)
    login_targets: list[ServiceName]
    node_targets: list[ServiceName]
    builds_root: AbsolutePath
    cache_root: AbsolutePath
    node_ccache: CacheName
    login_ccache: CacheName
    nodes: list[HostName] = Field(min_length=1)


class _ClustersFile(Table):
    default: RuleName
    cluster: dict[RuleName, _ClusterTable] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of a bundle."""

    default: str
    by_name: Mapping[str, Cluster]

    def choose(self, name: str | None) -> Cluster:
        """The named cluster, or the default one for None; raises PolicyRefused ``cluster.unknown``."""
        found = self.by_name.get(self.default if name is None else name)
        if found is None:
            raise PolicyRefused(
                "cluster.unknown",
                "The runner is configured for a cluster that the bridge does not know.",
                "Ask the runner's administrator to correct the cluster's name in the executor's configuration.",
                cluster=name,
            )
        return found


def parse_clusters(text: str) -> Clusters:
    """The clusters of the file's text; raises InvalidBundle."""
    file = parse_toml(FILE, text, _ClustersFile)
    if file.default not in file.cluster:
        raise InvalidBundle([Problem(FILE, None, f"default: there is no cluster {file.default!r}")])
    clusters = {name: _cluster(name, table) for name, table in file.cluster.items()}
    return Clusters(file.default, MappingProxyType(clusters))


def _cluster(name: str, table: _ClusterTable) -> Cluster:
    return Cluster(
        name=name,
        realm=table.realm,
        login_host=table.login_host,
        login_port=table.login_port,
        login_targets=tuple(table.login_targets),
        node_targets=tuple(table.node_targets),
        builds_root=table.builds_root,
        cache_root=table.cache_root,
        node_ccache=table.node_ccache,
        login_ccache=table.login_ccache,
        nodes=tuple(table.nodes),
    )
