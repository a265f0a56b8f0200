"""The run ends when it should: by a kill switch, and when its job is over in GitLab, whatever the runner does."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from realm import Realm, forge, tls
from realm.bridgehost import ci_bridge
from realm.errors import RealmError
from realm.gitlab.client import GitLabControl
from tests.e2e.person import WAIT_FOR_GO, Person

SOON_SECONDS = 20.0
"""Our five seconds, and what a machine under load adds to them: Slurm's own epilog is in them too."""

ALIVE = ["PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED"]


def slurm_state(realm: Realm, slurm_id: str) -> str:
    """What slurmctld says of a job: the first word of its state, or `gone`."""
    argv = ["scontrol", "show", "job", slurm_id, "--oneliner"]
    shown = realm.host("ctl").run(argv, check=False).stdout.decode()
    words = dict(word.partition("=")[::2] for word in shown.split())
    return words.get("JobState", "gone")


def seconds_until_ended(realm: Realm, slurm_id: str, since: float, bound: float = 30.0) -> float:
    """How long after `since` Slurm said that the job is over."""
    while slurm_state(realm, slurm_id) in ALIVE:
        assert time.monotonic() - since < bound, slurm_state(realm, slurm_id)
        time.sleep(0.1)
    return time.monotonic() - since


def records(realm: Realm, started: int) -> list[dict[str, object]]:
    """All that is on record of a GitLab job."""
    found: list[dict[str, object]] = json.loads(ci_bridge(realm, "audit", "timeline", "--job", str(started), "--json"))
    return found


@pytest.fixture
def no_switch_left(realm: Realm) -> Iterator[None]:
    """Lift whatever a test has thrown."""
    yield
    for switch in json.loads(ci_bridge(realm, "kill", "list", "--json")):
        ci_bridge(realm, "kill", "lift", switch["switch_id"], "--reason", "the test is over", user="root")


@pytest.mark.threat("T16")
@pytest.mark.usefixtures("no_switch_left")
def test_a_kill_switch_ends_what_runs_refuses_what_comes_and_is_lifted(
    realm: Realm, alice: Person, bob: Person
) -> None:
    job, bobs = alice.push(WAIT_FOR_GO), bob.push(WAIT_FOR_GO)
    alice.waits(job)
    bob.waits(bobs)
    slurm_id = alice.slurm_id(job)
    since = time.monotonic()
    thrown = json.loads(ci_bridge(realm, "kill", "user", "101", "--reason", "laptop stolen", "--json"))
    took = seconds_until_ended(realm, slurm_id, since)
    done = alice.finished(job)
    refused = alice.finished(alice.push("echo ran"))
    bob.go(bobs)

    assert took < SOON_SECONDS
    assert slurm_state(realm, slurm_id) in ("CANCELLED", "gone")
    assert (done.status, done.failure_reason) == ("failed", "script_failure")
    assert "killed.user" in alice.log(job)
    assert (refused.status, refused.failure_reason) == ("failed", "script_failure")
    assert "killed.user" in alice.log(refused)
    assert "\nran" not in alice.log(refused)
    assert "laptop" not in alice.log(job) + alice.log(refused)
    assert bob.finished(bobs).status == "success"
    ends = [one for one in records(realm, job.id) if one["type"] == "run" and one.get("code") == "killed.user"]
    assert [one["phase"] for one in ends] == ["intent", "ok"]
    assert all(one["detail"]["switch"] == thrown["switch_id"] for one in ends)  # type: ignore[index]

    with pytest.raises(RealmError, match=r"caller\.role"):
        ci_bridge(realm, "kill", "lift", thrown["switch_id"], "--reason", "laptop found")
    ci_bridge(realm, "kill", "lift", thrown["switch_id"], "--reason", "laptop found", user="root")
    assert alice.finished(alice.push("echo ran")).status == "success"
    acts = json.loads(ci_bridge(realm, "audit", "timeline", "--reference", thrown["switch_id"], "--json"))
    assert [(one["type"], one["detail"]["act"]) for one in acts] == [("kill", "thrown"), ("kill", "lifted")]
    assert [one["detail"]["by"].partition("(")[0] for one in acts] == ["local:ci-bridge", "local:root"]


@pytest.mark.threat("T16")
@pytest.mark.usefixtures("no_switch_left")
def test_a_switch_thrown_while_web_is_down_ends_the_job_once_it_is_back(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    slurm_id = alice.slurm_id(job)
    realm.host("bridge").run(["pkill", "-STOP", "-f", "serve --web-only"])
    ci_bridge(realm, "kill", "account", "alice", "--reason", "laptop stolen")
    realm.stop_service("bridge", signal.SIGKILL)
    assert slurm_state(realm, slurm_id) == "RUNNING"
    realm.restart_service("bridge")
    seconds_until_ended(realm, slurm_id, time.monotonic())

    assert alice.finished(job).status == "failed"
    assert "killed.account" in alice.log(job)


@contextmanager
def _frozen_runner(realm: Realm) -> Iterator[None]:
    """GitLab Runner stands still, its executors do not: whatever ends a job now, it is not the runner."""
    runner = realm.host("runner")
    runner.run(["pkill", "-STOP", "-f", "realm[.]runner"])
    try:
        yield
    finally:
        runner.run(["pkill", "-CONT", "-f", "realm[.]runner"])


def _block(realm: Realm, gitlab: GitLabControl, job_id: int) -> None:
    gitlab.block_user("alice")


def _say_that_it_is_over(realm: Realm, gitlab: GitLabControl, job_id: int) -> None:
    """As a runner that was taken over could, to go on unseen."""
    body = json.dumps({"token": gitlab.tokens(job_id).job_token, "state": "failed"})
    argv = ["curl", "--silent", "--fail", "--cacert", tls.CA_PATH, "--json", "@-", "--request", "PUT"]
    realm.host("desk").run([*argv, f"{forge.URL}/api/v4/jobs/{job_id}"], input=body.encode())


@pytest.mark.threat("T10")
@pytest.mark.parametrize("act", [_block, _say_that_it_is_over])
def test_a_job_that_ends_in_gitlab_behind_the_runners_back_loses_its_slurm_job(
    realm: Realm, gitlab: GitLabControl, alice: Person, act: Callable[[Realm, GitLabControl, int], None]
) -> None:
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    slurm_id = alice.slurm_id(job)
    try:
        with _frozen_runner(realm):
            since = time.monotonic()
            act(realm, gitlab, job.id)
            seconds_until_ended(realm, slurm_id, since)
    finally:
        gitlab.change_user("alice", state="active")
    alice.finished(job)

    assert slurm_state(realm, slurm_id) in ("CANCELLED", "gone")
    ends = [one for one in records(realm, job.id) if one["type"] == "run" and one["phase"] == "intent"]
    assert [one["code"] for one in ends] == ["job.not_running"]
    assert alice.finished(alice.push("echo ran")).status == "success"


@pytest.mark.threat("T10")
def test_a_bridge_that_was_restarted_watches_on(realm: Realm, gitlab: GitLabControl, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    slurm_id = alice.slurm_id(job)
    with _frozen_runner(realm):
        realm.restart_service("bridge")
        _say_that_it_is_over(realm, gitlab, job.id)
        seconds_until_ended(realm, slurm_id, time.monotonic())
    alice.finished(job)

    assert "job.not_running" in [one.get("code") for one in records(realm, job.id) if one["type"] == "run"]


@pytest.mark.threat("T10")
def test_a_gitlab_that_is_silent_ends_no_job(gitlab: GitLabControl, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    gitlab.forget_requests()
    gitlab.misbehave("job_api_500", times=1000)
    try:
        asked = _wait_for_questions(gitlab, 4)
    finally:
        gitlab.behave()
    alice.go(job)

    assert asked >= 4
    assert alice.finished(job).status == "success"


def _wait_for_questions(gitlab: GitLabControl, number: int, seconds: float = 30.0) -> int:
    """Wait until GitLab was asked so often about a job and failed to answer; how often it was."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        failed = [one for one in gitlab.requests() if one["path"] == "/api/v4/job" and one["status"] == 500]
        if len(failed) >= number:
            return len(failed)
        time.sleep(0.1)
    return 0
