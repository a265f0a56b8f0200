"""Nodes that lose their daemon or their power, queues that outlast tickets, and clocks that are wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from realm import Realm
from realm.login import SSHD
from realm.principals import MDS
from tests.e2e.on_nodes import AGENT, CACHE, ON_NODE1, STATE, age, principal_of, refresh, there, until
from tests.e2e.person import WAIT_FOR_GO, Person

PROLOG = "/usr/lib/ci-bridge/slurm-prolog"
TICKET_SECONDS = 9


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only")
def test_while_slurmd_is_dead_a_job_keeps_its_tickets_and_loses_them_once_it_is_back(
    realm: Realm, alice: Person
) -> None:
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    slurm_id = alice.slurm_id(job)
    realm.kill_service("slurmd-node1")
    try:
        assert refresh(realm) == "", "a running job was taken for gone"
        age(realm, slurm_id)
        assert "renewed in" in refresh(realm)
        assert principal_of(realm, "node1") == "alice@REALM.TEST"
        alice.go(job)
        until(lambda: _state(realm, slurm_id) == "COMPLETING", "the job did not end without slurmd")
        assert there(realm, "node1"), "nobody was there to remove it"
    finally:
        realm.restart_service("slurmd-node1")
    assert alice.finished(job).status == "success"
    until(lambda: not there(realm, "node1"), "the cache stayed")


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only")
def test_a_node_that_reboots_loses_job_and_tickets_and_serves_the_next(realm: Realm, alice: Person) -> None:
    lost = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(lost)
    slurm_id = alice.slurm_id(lost)

    realm.reboot("node1", keep_tmp=True)
    assert there(realm, "node1"), "this /tmp should have outlived the boot"
    assert f"job {slurm_id} is not here any more" in refresh(realm)
    assert not there(realm, "node1")
    assert not there(realm, "node1", f"{STATE}/{slurm_id}")

    # Until then Slurm takes a job that the node does not know for one that is on its way (BatchStartTimeout and
    # MessageTimeout, job_mgr.c). What a node has it hears when the node registers, as it does at its boot.
    until(lambda: _state(realm, slurm_id) != "RUNNING" or _seconds_ago(realm, slurm_id) > 12, "it did not grow older")
    realm.restart_service("slurmd-node1")
    until(lambda: _state(realm, slurm_id) != "RUNNING", "Slurm did not notice that the job is gone")
    done = alice.finished(lost)
    assert (done.status, done.failure_reason) == ("failed", "runner_system_failure")
    assert "slurm.node_failed" in alice.log(lost)

    after = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(after)
    assert principal_of(realm, "node1") == "alice@REALM.TEST"
    alice.go(after)
    assert alice.finished(after).status == "success"


def _seconds_ago(realm: Realm, slurm_id: str) -> int:
    """When the job was started."""
    minutes, _, seconds = _state(realm, slurm_id, "%M").partition(":")
    return int(minutes) * 60 + int(seconds)


def _state(realm: Realm, slurm_id: str, what: str = "%T") -> str:
    argv = ["squeue", "--noheader", f"--jobs={slurm_id}", "--states=all", f"--format={what}"]
    return realm.host("ctl").run(argv).stdout.decode().strip()


@pytest.mark.threat("T23")
def test_a_job_that_the_site_requeues_is_asked_for_anew(realm: Realm, alice: Person, waiting: tuple[int, str]) -> None:
    _, slurm_id = waiting
    ctl, node1 = realm.host("ctl"), realm.host("node1")
    refused = ctl.run(["scontrol", "requeue", slurm_id], check=False)
    assert b"presently disabled" in refused.stderr, "the bridge's jobs are not requeued just so"
    before = node1.read(CACHE)

    ctl.run(["scontrol", "update", f"jobid={slurm_id}", "requeue=1"])
    ctl.run(["scontrol", "requeue", slurm_id])
    until(lambda: _state(realm, slurm_id, "%r") == "BeginTime", "it was not requeued")
    until(lambda: not there(realm, "node1"), "the cache stayed")
    # Slurm holds it back for two minutes, since a node takes no credential of a job from the second of its revocation.
    ctl.run(["scontrol", "update", f"jobid={slurm_id}", "starttime=now+2"])
    until(lambda: there(realm, "node1"), "it was not asked for anew")

    assert node1.read(CACHE) != before
    assert principal_of(realm, "node1") == "alice@REALM.TEST"


@pytest.fixture
def short_tickets(realm: Realm) -> Iterator[None]:
    """The KDC gives tickets that end after some seconds, for the login node and the file system."""
    for principal in ("host/login.realm.test", MDS[0]):
        realm.kdc.modprinc(principal, f"-maxlife {TICKET_SECONDS}sec")
    yield
    for principal in ("host/login.realm.test", MDS[0]):
        realm.kdc.modprinc(principal, "-maxlife 10h")


@contextmanager
def _drained(realm: Realm) -> Iterator[None]:
    update = ["scontrol", "update", "nodename=node1"]
    realm.host("ctl").run([*update, "state=drain", "reason=test"])
    try:
        yield
    finally:
        realm.host("ctl").run([*update, "state=resume"])


@pytest.mark.threat("T23")
@pytest.mark.usefixtures("node1_only", "short_tickets")
def test_a_job_that_waits_for_longer_than_tickets_live_starts_with_good_ones(realm: Realm, alice: Person) -> None:
    with _drained(realm):
        job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
        alice.saw(job, "is waiting")
        ended = time.monotonic() + TICKET_SECONDS
        until(lambda: time.monotonic() > ended, "time stands still")
    alice.waits(job)
    assert principal_of(realm, "node1") == "alice@REALM.TEST"
    alice.go(job)
    assert alice.finished(job).status == "success"


@contextmanager
def _prolog_with_clock(realm: Realm, moved: str) -> Iterator[None]:
    node1 = realm.host("node1")
    prolog = node1.read(PROLOG)
    fake = f"#!/bin/sh\nexport FAKETIME_DONT_FAKE_MONOTONIC=1\nexec /usr/bin/faketime -m -f {moved} {AGENT} prolog\n"
    node1.write(PROLOG, fake, mode=0o755)
    try:
        yield
    finally:
        node1.write(PROLOG, prolog, mode=0o755)


@pytest.mark.threat("T25")
@pytest.mark.usefixtures("node1_only")
def test_a_node_whose_clock_is_wrong_says_so_and_runs_no_job_of_the_bridge(realm: Realm, alice: Person) -> None:
    with _prolog_with_clock(realm, "+10m"):
        job = alice.finished(alice.push("echo ran", variables=ON_NODE1))
    log = alice.log(job)

    assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
    assert "node.no_tickets" in log
    assert re.search(r"clock is 6\d\d s ahead", log)
    assert "\nran" not in log
    assert not there(realm, "node1")


@contextmanager
def _sshd_with_clock(realm: Realm, moved: str) -> Iterator[None]:
    realm.stop_service("sshd")
    # Connections that are open already ask for no ticket any more.
    realm.host("login").run(["pkill", "-KILL", "-x", "sshd"], check=False)
    realm.start_service(replace(SSHD, argv=("/usr/bin/faketime", "-f", moved, *SSHD.argv)))
    try:
        yield
    finally:
        realm.stop_service("sshd")
        realm.start_service(SSHD)


@pytest.mark.threat("T25")
def test_a_login_node_whose_clock_is_wrong_is_a_system_failure_that_names_the_clock(
    realm: Realm, alice: Person
) -> None:
    with _sshd_with_clock(realm, "+10m"):
        job = alice.finished(alice.push("echo ran"))

    assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
    assert "ssh.clock_skew" in alice.log(job)
