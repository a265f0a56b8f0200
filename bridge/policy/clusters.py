"""Reads ``clusters.toml``: where the bridge sends people, and which services their tickets may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from pydantic import BeforeValidator, Field

from bridge.errors import PolicyRefused
from bridge.model import Cluster, Flavor, Mount
from bridge.policy.files import Table, named, parse_toml
from bridge.policy.names import (
    AbsolutePath,
    CacheName,
    FsName,
    HostName,
    Nid,
    NodeCacheName,
    RealmName,
    RuleName,
    ServiceName,
)
from bridge.policy.problems import InvalidBundle, Problem

FILE = "clusters.toml"


class _MountTable(Table):
    fsname: FsName
    nids: list[Nid] = Field(min_length=1)
    subdirectory: AbsolutePath = "/"
    mountpoint: AbsolutePath
    mdt_flavor: Annotated[Flavor, BeforeValidator(named(Flavor))]
    ost_flavor: Annotated[Flavor, BeforeValidator(named(Flavor))]
    project_id: int | None = Field(default=None, ge=1, le=2**32 - 1)


class _ClusterTable(Table):
    realm: RealmName
    login_host: HostName
    login_port: int = Field(ge=1, le=65535)
    login_targets: list[ServiceName]
    node_targets: list[ServiceName]
    builds_root: AbsolutePath
    cache_root: AbsolutePath
    node_ccache: NodeCacheName
    login_ccache: CacheName
    nodes: list[HostName] = Field(min_length=1)
    mount: dict[RuleName, _MountTable] = Field(default={})
    login_hosts: list[HostName] = Field(default=[], max_length=8)


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
        login_hosts=tuple(table.login_hosts),
        mounts=tuple(_mount(one, mount) for one, mount in table.mount.items()),
    )


def _mount(name: str, table: _MountTable) -> Mount:
    return Mount(
        name=name,
        fsname=table.fsname,
        nids=tuple(table.nids),
        subdirectory=table.subdirectory,
        mountpoint=table.mountpoint,
        mdt_flavor=table.mdt_flavor,
        ost_flavor=table.ost_flavor,
        project_id=table.project_id,
    )
