"""Two login nodes with real sshds: one that is down, drains or refuses is gone around, and the work goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bridge_side import LOGIN, BridgeSide, bridge_side
from second_login import ADDRESS, HOST, NAME, TARGET, delegated_to_both, new_key, second_login

from bridge.cluster.opening import LoginOpener
from bridge.cluster.pool import LoginPool
from bridge.cluster.ssh import HostKeys
from bridge.errors import Defect, Outage
from bridge.kerberos.holding import hold
from bridge.model import Cluster, TicketBundle
from realm import Realm


class Two:
    """A cluster of two login nodes, the second of which is tried first, so that it can be taken away."""

    def __init__(self, side: BridgeSide) -> None:
        self.side = side
        self.cluster: Cluster = replace(side.cluster, login_host=NAME, login_hosts=("login.realm.test",))
        addresses = {NAME: ADDRESS, "login.realm.test": side.realm.host("login").address}
        self.pool = LoginPool(LoginOpener(hold, HostKeys(side.known_hosts), addresses=addresses))

    def tickets(self) -> TicketBundle:
        return self.side.impersonation([TARGET]).tickets("alice", 20001, self.cluster.ssh_targets, 600)

    def host(self) -> str:
        lease = self.pool.lease(self.cluster, "alice", self.tickets)
        try:
            return lease.node.hello().host
        finally:
            lease.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return new_key(tmp_path, "key")


@pytest.fixture
def two(realm: Realm, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    with delegated_to_both(realm), bridge_side(realm, tmp_path, monkeypatch) as side:
        public = " ".join(key.with_name("key.pub").read_text().split()[:2])
        with side.known_hosts.open("a") as known:
            known.write(f"{NAME} {public}\n")
        two = Two(side)
        yield two
        two.pool.close()


def test_one_bundle_is_good_for_both_nodes_and_nothing_else(two: Two) -> None:
    servers = {ticket.server for ticket in two.tickets().tickets}
    assert servers == {f"{TARGET}@REALM.TEST", f"{LOGIN}@REALM.TEST"}


def test_a_node_that_is_down_is_gone_around_and_comes_back(two: Two, key: Path) -> None:
    assert two.host() == "login.realm.test"
    two.pool.disconnect("alice")
    with second_login(two.side.realm, key):
        assert two.host() == "login.realm.test", "the account stays where it is"


def test_work_goes_on_when_the_node_dies_under_it(two: Two, key: Path) -> None:
    lease = two.pool.lease(two.cluster, "alice", two.tickets)
    with second_login(two.side.realm, key):
        node = lease.node
        assert node.hello().host == NAME
        script = node.run(b"echo here; exec sleep 60", env={})
        output = iter(script)
        assert next(output) == b"here\n"
        two.side.realm.host(HOST).run(["/usr/bin/pkill", "-KILL", "-f", "sshd: alice"])
        with pytest.raises(Outage, match=r"login\.connection_lost"):
            next(output)
    assert lease.node.hello().host == "login.realm.test"
    lease.close()


@pytest.mark.parametrize(
    "how",
    ["DenyUsers alice", "PubkeyAuthentication yes\nAuthenticationMethods publickey", "drains"],
    ids=["refuses", "no-kerberos", "drains"],
)
def test_a_node_that_refuses_or_drains_is_gone_around(two: Two, key: Path, how: str) -> None:
    nologin = two.side.realm.host(HOST).path("/etc") / "nologin"
    if how == "drains":
        nologin.write_text("The node is drained.\n")
    try:
        with second_login(two.side.realm, key, *([] if how == "drains" else [how])):
            assert two.host() == "login.realm.test"
    finally:
        nologin.unlink(missing_ok=True)


@pytest.mark.threat("T33")
def test_a_node_with_a_foreign_key_is_not_gone_around(two: Two, tmp_path: Path) -> None:
    with second_login(two.side.realm, new_key(tmp_path, "foreign")), pytest.raises(Defect, match=r"ssh\.host_key"):
        two.host()


@pytest.mark.threat("T33")
def test_the_second_node_can_not_stand_in_for_the_first(two: Two, key: Path) -> None:
    """The address of one with the name of the other: neither host key nor Kerberos fits."""
    opener = LoginOpener(hold, HostKeys(two.side.known_hosts), addresses={"login.realm.test": ADDRESS})
    with second_login(two.side.realm, key):
        with pytest.raises(Defect, match=r"ssh\.host_key"):
            opener(two.side.cluster, "alice", two.tickets())
        stolen = " ".join(key.with_name("key.pub").read_text().split()[:2])
        two.side.known_hosts.write_text(f"login.realm.test {stolen}\n")
        opener = LoginOpener(hold, HostKeys(two.side.known_hosts), addresses={"login.realm.test": ADDRESS})
        with pytest.raises(Outage, match=r"ssh\.kerberos"):
            opener(two.side.cluster, "alice", two.tickets())


def test_slurm_is_the_same_from_either_node(two: Two, key: Path) -> None:
    """A job that was submitted over one node is found, and its log read, over the other."""
    lease = two.pool.lease(two.cluster, "alice", two.tickets)
    with second_login(two.side.realm, key):
        first = lease.node
        assert first.hello().host == NAME
        made = first.workspace("a" * 26, "/builds", "/builds")
        log = f"{made.private_dir}/x.log"
        script = f"{made.private_dir}/x.sh"
        first.put(script, b"#!/bin/bash\necho from the job\n", 0o700)
        job = first.submit(["--job-name", "ci-failover", "--output", log, "--chdir", made.private_dir, script])
        two.pool.disconnect("alice")
    second = lease.node
    assert second.hello().host == "login.realm.test"
    assert [row.job_id for row in second.find("ci-failover") if row.job_id == job.job_id]
    following = second.follow(log, 0)
    assert next(iter(following))[1] == b"from the job\n"
    following.abandon()
    second.cancel(job.job_id)
    second.destroy("a" * 26, "/builds", None)
    lease.close()
