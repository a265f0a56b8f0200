"""What a site may settle otherwise than the checkout: a line of clusters.toml, of node.toml; put back afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from realm import Realm
from realm.bridgehost import POLICIES, SERVICE

CLUSTERS = f"{POLICIES}/clusters.toml"
NODE_CONFIG = "/etc/ci-bridge/node.toml"
RELOAD_SECONDS = 30.0


def reload(realm: Realm) -> None:
    """Let the broker read the policies again, and wait until it has."""
    before = realm.log(SERVICE.name).count("policy.reloaded")
    broker = realm.host("bridge").run(["pgrep", "--uid", "ci-bridge-broker", "--full", "bridge.cli.main broker"])
    realm.host("bridge").run(["kill", "-HUP", *broker.stdout.decode().split()])
    deadline = time.monotonic() + RELOAD_SECONDS
    while realm.log(SERVICE.name).count("policy.reloaded") == before:
        assert time.monotonic() < deadline, realm.log(SERVICE.name)[-2000:]
        time.sleep(0.05)


@contextmanager
def cluster_with(realm: Realm, **names: str | list[str]) -> Iterator[None]:
    """Let the cluster have these values in place of its own, until the end of the block."""
    host = realm.host("bridge")
    before = host.read(CLUSTERS).decode()
    lines = [line for line in before.splitlines() if line.partition(" =")[0] not in names]
    assert len(lines) == len(before.splitlines()) - len(names)
    lines += [f"{name} = {json.dumps(value)}" for name, value in names.items()]
    try:
        host.write(CLUSTERS, "\n".join(lines) + "\n")
        reload(realm)
        yield
    finally:
        host.write(CLUSTERS, before)
        reload(realm)


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
