"""What a site may settle otherwise than the checkout: a line of clusters.toml, of node.toml; put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from realm import Realm
from realm.bridgehost import POLICIES
from tests.e2e.test_linking import _reload

CLUSTERS = f"{POLICIES}/clusters.toml"
NODE_CONFIG = "/etc/ci-bridge/node.toml"


@contextmanager
def cluster_with(realm: Realm, **names: str) -> Iterator[None]:
    """Let the cluster have these strings in place of its own, until the end of the block."""
    host = realm.host("bridge")
    before = host.read(CLUSTERS).decode()
    lines = [line for line in before.splitlines() if line.partition(" =")[0] not in names]
    assert len(lines) == len(before.splitlines()) - len(names)
    lines += [f'{name} = "{value}"' for name, value in names.items()]
    try:
        host.write(CLUSTERS, "\n".join(lines) + "\n")
        _reload(realm)
        yield
    finally:
        host.write(CLUSTERS, before)
        _reload(realm)


@contextmanager
def node_with(realm: Realm, node: str, line: str) -> Iterator[None]:
    """Let a node's settings have one line more, until the end of the block."""
    host = realm.host(node)
    before = host.read(NODE_CONFIG).decode()
    try:
        host.write(NODE_CONFIG, f"{before}\n{line}\n")
        yield
    finally:
        host.write(NODE_CONFIG, before)


@contextmanager
def logged_in(realm: Realm, name: str, at: str, cache: str | None = None) -> Iterator[None]:
    """Let a person run kinit on a host, and kdestroy -A at the end; `cache` is their KRB5CCNAME, if they set one."""
    host, keytab = realm.host(at), f"/tmp/{name}.keytab"
    env = {} if cache is None else {"KRB5CCNAME": cache}
    host.write(keytab, realm.host("desk").read(realm.user_keytab(name)), mode=0o600, owner=name)
    try:
        host.run(["kinit", "-k", "-t", keytab, name], user=name, env=env)
        yield
    finally:
        host.run(["rm", "-f", keytab])
        host.run(["kdestroy", "-A"], user=name, env=env, check=False)
