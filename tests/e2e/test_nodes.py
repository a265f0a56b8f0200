"""Tickets on real compute nodes: there while the job runs, good without the KDC, gone after it, and nobody else's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from realm import Realm
from realm.bridgehost import ci_bridge
from tests.e2e.on_nodes import (
    CACHE,
    CONFIG,
    ON_BOTH,
    ON_NODE1,
    STATE,
    age,
    ask,
    deliveries,
    principal_of,
    refresh,
    there,
    until,
)
from tests.e2e.person import WAIT_FOR_GO, Person


@contextmanager
def _without_kdc(realm: Realm) -> Iterator[None]:
    realm.stop_service("krb5kdc")
    try:
        yield
    finally:
        realm.restart_service("krb5kdc")


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only")
def test_a_service_elsewhere_lets_the_ticket_in_with_the_kdc_down_and_afterwards_nothing_is_left(
    realm: Realm, alice: Person
) -> None:
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    with _without_kdc(realm):
        assert principal_of(realm, "node1") == "alice@REALM.TEST"
    assert realm.host("node1").run(["cat", CACHE], user="bob", check=False).returncode != 0
    alice.go(job)
    assert alice.finished(job).status == "success"
    until(lambda: not there(realm, "node1"), "the cache stayed")
    assert realm.host("node1").run(["ls", STATE]).stdout == b""
    left = realm.host("node1").run(["find", "/tmp", "/run", "-name", "*krb5cc*"]).stdout
    assert left == b""
    until(lambda: len(deliveries(realm, job.id)) == 3, "the bridge was not told")
    assert deliveries(realm, job.id) == [
        ("intent", "node1.realm.test", False),
        ("ok", "node1.realm.test", False),
        ("event", "node1.realm.test", True),
    ]


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only")
def test_two_jobs_of_a_person_on_a_node_share_the_tickets_and_the_last_takes_them(realm: Realm, alice: Person) -> None:
    one, two = alice.push(WAIT_FOR_GO, variables=ON_NODE1), alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(one)
    alice.waits(two)
    first, second = alice.slurm_id(one), alice.slurm_id(two)
    alice.go(one)
    assert alice.finished(one).status == "success"
    until(lambda: not there(realm, "node1", f"{STATE}/{first}"), "the first job's epilog did not come")
    assert there(realm, "node1", f"{STATE}/{second}")
    assert principal_of(realm, "node1") == "alice@REALM.TEST"
    alice.go(two)
    assert alice.finished(two).status == "success"
    until(lambda: not there(realm, "node1"), "the cache stayed")


def test_a_job_on_two_nodes_has_tickets_on_both_before_it_starts(realm: Realm, alice: Person) -> None:
    job = alice.push(f'srun --ntasks-per-node=1 sh -c "hostname; klist -c {CACHE}"', variables=ON_BOTH)
    assert alice.finished(job).status == "success", alice.log(job)
    log = alice.log(job)
    assert log.count("Default principal: alice@REALM.TEST") == 2
    assert re.search(r"^node1", log, re.MULTILINE)
    assert re.search(r"^node2", log, re.MULTILINE)
    assert "krbtgt" not in log
    for node in ("node1", "node2"):
        until(lambda node=node: not there(realm, node), f"the cache stayed on {node}")  # type: ignore[misc]


@pytest.mark.threat("T37")
def test_a_stolen_node_keytab_gets_nothing_but_its_own_jobs(realm: Realm, waiting: tuple[int, str]) -> None:
    job_id, slurm_id = waiting
    before = deliveries(realm, job_id)
    node2 = realm.host("node2")
    as_node1 = node2.read(CONFIG).decode() + '\nnode = "node1.realm.test"\n'
    node2.write("/root/as-node1.toml", as_node1)
    node2.write("/root/both.toml", as_node1 + 'keytab = "/etc/krb5.keytab"\n')
    try:
        assert "node.not_running_here" in ask(realm, "node2", slurm_id)
        assert "Kerberos" in ask(realm, "node2", slurm_id, config="/root/as-node1.toml")
        assert ask(realm, "node2", slurm_id, uid=20002) == "node.not_ours"
        assert ask(realm, "node2", "999999") == "node.not_ours"
        assert ask(realm, "node1", slurm_id, uid=20002) == "node.not_ours"
        assert deliveries(realm, job_id) == before
        assert ask(realm, "node1", slurm_id) == "got tickets"
    finally:
        node2.run(["rm", "-f", "/root/as-node1.toml", "/root/both.toml"])


@pytest.mark.threat("T16")
def test_tickets_are_renewed_while_the_run_may_go_on_and_not_after_a_kill_switch(
    realm: Realm, alice: Person, waiting: tuple[int, str]
) -> None:
    _, slurm_id = waiting
    node1 = realm.host("node1")
    assert refresh(realm) == "", "fresh tickets were renewed, or a running job was taken for gone"
    before = node1.read(CACHE)
    age(realm, slurm_id)
    assert "renewed in" in refresh(realm)
    renewed = node1.read(CACHE)
    assert renewed != before
    assert principal_of(realm, "node1") == "alice@REALM.TEST"

    age(realm, slurm_id)
    thrown = json.loads(ci_bridge(realm, "kill", "project", "999999", "--reason", "elsewhere", "--json"))
    assert "renewed in" in refresh(realm), "another project's switch stopped this run"
    ci_bridge(realm, "kill", "lift", thrown["switch_id"], "--reason", "the test is over", user="root")
    age(realm, slurm_id)
    old = node1.read(CACHE)
    realm.stop_service("bridge")
    try:
        assert "not renewed yet" in refresh(realm)
        assert node1.read(CACHE) == old
    finally:
        realm.restart_service("bridge")
    ci_bridge(realm, "kill", "account", "alice", "--reason", "laptop stolen")
    try:
        answer = ask(realm, "node1", slurm_id)
        assert answer == "killed.account" or "run.ended" in answer, answer
    finally:
        for switch in json.loads(ci_bridge(realm, "kill", "list", "--json")):
            ci_bridge(realm, "kill", "lift", switch["switch_id"], "--reason", "the test is over", user="root")


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only")
def test_what_an_epilog_that_never_came_left_is_gone_after_a_tick(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    slurm_id, node1 = alice.slurm_id(job), realm.host("node1")
    marker, cache = node1.read(f"{STATE}/{slurm_id}"), node1.read(CACHE)
    alice.go(job)
    assert alice.finished(job).status == "success"
    until(lambda: not there(realm, "node1"), "the cache stayed")
    node1.write(f"{STATE}/{slurm_id}", marker, mode=0o600)
    node1.write(CACHE, cache, mode=0o600, owner="alice")

    until(lambda: "not here any more" in refresh(realm) or not there(realm, "node1"), "it was not removed")
    assert not there(realm, "node1")
    assert not there(realm, "node1", f"{STATE}/{slurm_id}")


@pytest.mark.usefixtures("node1_only", "short_tickets")
def test_a_job_that_outlives_its_tickets_has_good_ones_all_the_time(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    path, node1 = f"{STATE}/{alice.slurm_id(job)}", realm.host("node1")
    end = float(json.loads(node1.read(path))["end"])
    said: list[str] = []

    def lasts_on() -> bool:
        said.append(refresh(realm))
        return float(json.loads(node1.read(path))["end"]) > end + 9

    until(lasts_on, "no renewal")

    renewals = [one for one in said if "renewed in" in one]
    assert 2 <= len(renewals) < len(said), "renewed at every tick, or too late"
    assert "not renewed" not in "".join(said)
    alice.go(job)
    assert alice.finished(job).status == "success"
    until(lambda: not there(realm, "node1"), "the cache stayed")


@contextmanager
def _slurmd_hangs(realm: Realm) -> Iterator[None]:
    node1 = realm.host("node1")
    node1.run(["pkill", "-STOP", "-x", "slurmd"])
    try:
        yield
    finally:
        node1.run(["pkill", "-CONT", "-x", "slurmd"])


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only")
def test_while_slurmd_hangs_a_running_job_keeps_its_tickets_and_loses_them_at_its_end(
    realm: Realm, alice: Person
) -> None:
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    with _slurmd_hangs(realm):
        assert refresh(realm) == ""
        assert principal_of(realm, "node1") == "alice@REALM.TEST"
    alice.go(job)
    assert alice.finished(job).status == "success"
    until(lambda: not there(realm, "node1"), "the cache stayed")
