"""Where compute nodes may be told to keep tickets: what a policy can name is what the node agent can write."""

from __future__ import annotations

import pytest

from bridge.policy.bundle import load_bundle
from bridge.policy.clusters import parse_clusters
from bridge.policy.problems import InvalidBundle
from runner.node.collection import Collection
from runner.node.place import Place
from runner.node.settings import COLLECTIONS
from tests.unit.policy.policy_examples import POLICIES

UID = 20001
GOOD = (
    "FILE:/tmp/krb5cc_%{uid}",
    "DIR:/tmp/krb5cc_%{uid}",
    "FILE:/var/lib/tickets/krb5cc_ci_%{uid}",
    "FILE:/run/user/%{uid}/krb5cc",
    "DIR:/run/user/%{uid}/krb5cc",
)
BAD = {
    "KEYRING:persistent:%{uid}:mine": "itself names the cache",
    "KEYRING:user:%{uid}": "KEYRING:persistent",
    "KEYRING:%{uid}": "KEYRING:persistent",
    "KCM:": "KCM:%{uid}",
    "KCM:%{uid}:mine": "KCM:%{uid}",
    "MEMORY:krb5cc_%{uid}": "FILE or DIR",
    "/tmp/krb5cc_%{uid}": "FILE or DIR",
    "FILE:/tmp/krb5cc": "%{uid}",
    "FILE:/tmp/krb5cc_%{euid}": "%{uid}",
    "FILE:/tmp/%{username}/krb5cc_%{uid}": "no other",
    "FILE:/tmp/krb5cc_%{uid}_ci": "ends in",
    "FILE:/tmp/tickets_%{uid}": "begins with",
    "FILE:tmp/krb5cc_%{uid}": "absolute",
    "FILE:/tmp/../etc/krb5cc_%{uid}": "absolute",
    "FILE://tmp/krb5cc_%{uid}": "absolute",
}


def _with(name: str) -> str:
    text = (POLICIES / "clusters.toml").read_text(encoding="utf-8")
    line = 'node_ccache = "FILE:/tmp/krb5cc_%{uid}"'
    assert line in text
    return text.replace(line, f'node_ccache = "{name}"')


@pytest.mark.parametrize("name", GOOD)
def test_what_policy_names_the_node_can_write(name: str) -> None:
    (cluster,) = parse_clusters(_with(name)).by_name.values()
    path = cluster.node_ccache.replace("%{uid}", str(UID))
    Place(path, [name.partition(":")[2].rpartition("/")[0]], UID)


@pytest.mark.parametrize("name", COLLECTIONS)
def test_collections_that_policy_names_the_node_can_write(name: str) -> None:
    (cluster,) = parse_clusters(_with(name)).by_name.values()
    Collection(cluster.node_ccache.replace("%{uid}", str(UID)), [name], UID)


@pytest.mark.parametrize(("name", "reason"), BAD.items())
def test_what_the_node_can_not_write_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidBundle) as refusal:
        parse_clusters(_with(name))
    assert reason in str(refusal.value.problems)


def test_the_shipped_policies_name_the_default_place() -> None:
    clusters = load_bundle(POLICIES).clusters.by_name.values()
    assert {cluster.node_ccache for cluster in clusters} == {"FILE:/tmp/krb5cc_%{uid}"}
