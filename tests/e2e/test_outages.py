"""Whatever is down: a retryable system failure with one clear line, nothing left behind, and recovery by itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from realm import Realm
from realm.gitlab.client import GitLabControl
from tests.e2e.person import WAIT_FOR_GO, Person


@contextmanager
def _down(realm: Realm, service: str) -> Iterator[None]:
    realm.stop_service(service, signal.SIGKILL)
    try:
        yield
    finally:
        realm.restart_service(service)


@pytest.mark.threat("T24")
@pytest.mark.parametrize(
    ("service", "code"),
    [("bridge", "executor.bridge_unreachable"), ("krb5kdc", "kerberos.kdc_unreachable")],
)
def test_an_outage_is_a_system_failure_that_the_runner_may_retry(
    realm: Realm, alice: Person, service: str, code: str
) -> None:
    with _down(realm, service):
        job = alice.finished(alice.push("echo ran"), 120)
    log = alice.log(job)
    after = alice.finished(alice.push("echo ran"))

    assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
    assert code in log
    assert "Traceback" not in log
    assert after.status == "success"


def test_a_login_node_that_is_gone_is_a_system_failure(realm: Realm, alice: Person) -> None:
    realm.power_off("login")
    try:
        job = alice.finished(alice.push("echo ran"), 120)
    finally:
        realm.power_on("login")
    after = alice.finished(alice.push("echo ran"), 120)

    assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
    assert "ssh." in alice.log(job) or "login." in alice.log(job)
    assert after.status == "success"


def test_slurm_that_stays_down_is_a_system_failure(realm: Realm, alice: Person) -> None:
    with _down(realm, "slurmctld"):
        job = alice.push("echo ran")
        alice.saw(job, "ci-bridge: outage", 120)
    done = alice.finished(job)
    log = alice.log(job)

    assert (done.status, done.failure_reason) == ("failed", "runner_system_failure")
    assert "slurm.unreachable" in log
    assert "\nran" not in log


@pytest.mark.threat("T32")
def test_slurm_that_comes_back_in_time_runs_the_job_once(realm: Realm, alice: Person) -> None:
    with _down(realm, "slurmctld"):
        job = alice.push("echo ran")
        alice.saw(job, "slurm.unreachable")
    done = alice.finished(job, 90)

    assert done.status == "success"
    assert alice.log(job).count("\nran") == 1


def test_a_node_without_tickets_ends_the_job_and_is_not_drained(realm: Realm, alice: Person) -> None:
    nodes = [realm.host(name) for name in ("node1", "node2")]
    settings = nodes[0].read("/etc/ci-bridge/node.toml")
    for node in nodes:
        node.write("/etc/ci-bridge/node.toml", settings.replace(b":8443", b":8444"))
    try:
        job = alice.finished(alice.push("echo ran"), 90)
    finally:
        for node in nodes:
            node.write("/etc/ci-bridge/node.toml", settings)
    states = realm.host("ctl").run(["sinfo", "--noheader", "--Node", "--format=%T"]).stdout.decode().split()

    assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
    assert "node.no_tickets" in alice.log(job)
    assert "\nran" not in alice.log(job)
    assert not [state for state in states if "drain" in state or "down" in state]
    assert alice.finished(alice.push("echo ran")).status == "success"


def test_gitlab_that_does_not_answer_is_a_system_failure(gitlab: GitLabControl, alice: Person) -> None:
    gitlab.misbehave("job_api_500", times=20)
    job = alice.finished(alice.push("echo ran"))
    gitlab.behave()

    assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
    assert "gitlab.unreachable" in alice.log(job)


def test_a_restart_of_the_bridge_loses_and_repeats_no_line_of_a_running_job(realm: Realm, alice: Person) -> None:
    count = 'for i in $(seq 1 40); do echo "line $i."; sleep 0.1; done'
    job = alice.push(count, WAIT_FOR_GO, count)
    alice.saw(job, "line 10.")
    realm.restart_service("bridge")
    alice.go(job)

    assert alice.finished(job, 90).status == "success"
    lines = [line for line in alice.log(job).splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}." for number in range(1, 41)] * 2


def test_a_killed_executor_leaves_no_slurm_job(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    slurm_id = alice.slurm_id(job)
    realm.host("runner").run(["pkill", "-KILL", "-f", "ci-bridge-executor run"])
    done = alice.finished(job)
    queue = realm.host("ctl").run(["squeue", "--noheader", "--jobs", slurm_id, "--states=R,PD"], check=False)

    assert done.status == "failed"
    assert queue.stdout.strip() == b""


def test_two_jobs_of_one_person_on_one_node_keep_their_tickets(realm: Realm, alice: Person) -> None:
    where = {"SCHEDULER_PARAMETERS": "--partition=ci"}
    long = alice.push(WAIT_FOR_GO, "klist", variables=where)
    alice.waits(long)
    short = alice.finished(alice.push("hostname", variables=where))
    alice.go(long)
    done = alice.finished(long)

    assert (short.status, done.status) == ("success", "success")
    assert "lustre_mds/mds1.realm.test@REALM.TEST" in alice.log(done).partition("$ klist")[2]


def test_many_jobs_of_two_people_side_by_side_are_each_their_own(alice: Person, bob: Person) -> None:
    pushed = [(who, who.push('echo "who: $(id -un)"')) for _ in range(5) for who in (alice, bob)]

    for who, job in pushed:
        assert who.finished(job, 120).status == "success"
        assert f"\nwho: {who.name}" in who.log(job)
