"""A real Slurm through the real login agent: held, released, followed, ended, cancelled, found; and what it refuses."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest
from bridge_side import BridgeSide, bridge_side

from bridge.cluster.login import LoginSession
from bridge.cluster.node import Workspace
from bridge.cluster.options import to_argv
from bridge.cluster.poller import Poller
from bridge.cluster.slurm import BaseState, JobState, Slurm
from bridge.errors import BridgeError, Outage, RequestRefused
from bridge.model import SlurmPlan
from realm import Realm

PLAN = SlurmPlan(partition="ci", nodes=1, time_minutes=5)
WRAPPER = "/usr/lib/ci-bridge/ci-bridge-job"
ENDED_WITHIN = 30.0


class Job:
    """One run's way to submit scripts as alice."""

    def __init__(self, session: LoginSession, place: Workspace, run: str) -> None:
        self.session = session
        self.slurm = Slurm(session)
        self.place = place
        self.run = run

    def log(self, stage: str) -> str:
        return f"{self.place.private_dir}/{stage}.log"

    def name(self, stage: str) -> str:
        return f"ci-{self.run}-{stage}"

    def argv(self, stage: str, script: bytes, plan: SlurmPlan = PLAN) -> list[str]:
        path = f"{self.place.private_dir}/{stage}.sh"
        self.session.put(path, script, 0o600)
        private, comment = self.place.private_dir, f"run {self.run}"
        return to_argv(
            plan,
            job_name=self.name(stage),
            comment=comment,
            private_dir=private,
            output=self.log(stage),
            command=(WRAPPER, path),
        )

    def held(self, stage: str, script: bytes, plan: SlurmPlan = PLAN) -> int:
        return self.slurm.submit_held(self.argv(stage, script, plan))

    def state(self, job_id: int) -> JobState:
        return self.slurm.states([job_id])[job_id]

    def ended(self, job_id: int) -> JobState:
        end = time.monotonic() + ENDED_WITHIN
        while not (state := self.state(job_id)).ended:
            assert time.monotonic() < end, state
            time.sleep(0.05)
        return state

    def started(self, job_id: int) -> JobState:
        end = time.monotonic() + ENDED_WITHIN
        while not (state := self.state(job_id)).started:
            assert time.monotonic() < end, state
            time.sleep(0.05)
        return state


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


@pytest.fixture
def job(side: BridgeSide) -> Iterator[Job]:
    session, run = side.login("alice"), secrets.token_hex(13)
    place = session.workspace(run, "/builds", "/builds")
    yield Job(session, place, run)
    for left in Slurm(session).states(_all_ids(session, run)).values():
        session.cancel(left.job_id)
    session.destroy(run, "/builds", None)
    session.close()


def _all_ids(session: LoginSession, run: str) -> list[int]:
    stages = ("build_script", "one", "two")
    return [state.job_id for stage in stages for state in Slurm(session).find(f"ci-{run}-{stage}")]


def test_a_submitted_job_waits_until_it_is_released(job: Job) -> None:
    job_id = job.held("build_script", b"echo ran")
    for _ in range(10):
        state = job.state(job_id)
        assert (state.base, state.reason) == (BaseState.PENDING, "JobHeldUser")
        time.sleep(0.1)
    job.slurm.release(job_id)
    assert job.ended(job_id).base is BaseState.COMPLETED


@pytest.mark.parametrize(
    ("script", "base", "exit_code", "signal"),
    [
        (b"exit 0", BaseState.COMPLETED, 0, None),
        (b"exit 3", BaseState.FAILED, 3, None),
        (b"exit 255", BaseState.FAILED, 255, None),
        (b"kill -9 $$", BaseState.FAILED, None, 9),
        (b"nosuchcommand", BaseState.FAILED, 127, None),
    ],
    ids=str,
)
def test_the_end_of_the_script_is_the_end_of_the_job(
    job: Job, script: bytes, base: BaseState, exit_code: int | None, signal: int | None
) -> None:
    job_id = job.held("build_script", script)
    job.slurm.release(job_id)
    state = job.ended(job_id)
    assert (state.base, state.exit_code, state.signal) == (base, exit_code, signal)


def test_the_job_runs_as_the_person_with_a_clean_environment(job: Job) -> None:
    job_id = job.held("build_script", b"id -un; hostname; env; klist 2>&1; exit 0")
    job.slurm.release(job_id)
    job.ended(job_id)
    log = _whole_log(job, "build_script")
    assert log.splitlines()[0] == "alice"
    assert log.splitlines()[1].startswith("node")
    names = {line.partition("=")[0] for line in log.splitlines() if "=" in line and line.split("=")[0].isidentifier()}
    assert {"HOME", "USER", "PATH", "SLURM_JOB_ID"} <= names
    assert {name for name in names if not name.startswith("SLURM")} <= {
        *("HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "TMPDIR", "PWD", "SHLVL", "_"),
    }


@pytest.mark.threat("T30")
def test_nothing_in_the_script_steers_slurm(job: Job) -> None:
    script = b"#!/bin/sh\n#SBATCH --partition=debug\n#SBATCH --time=1\n#PBS -q debug\n#BSUB -q debug\necho $0\n"
    job_id = job.held("build_script", script, replace(PLAN, time_minutes=7, nodes=2, tasks=2, memory_mib=100))
    shown = job.session.run(f"scontrol show job {job_id} -o".encode(), env={})
    record = dict(word.partition("=")[::2] for word in b"".join(shown).decode().split())
    assert record["Partition"] == "ci"
    assert record["TimeLimit"] == "00:07:00"
    assert record["NumNodes"] in ("2", "2-2")
    assert record["UserId"] == "alice(20001)"
    assert record["JobName"] == job.name("build_script")
    assert record["Requeue"] == "0"
    assert record["StdOut"] == job.log("build_script")
    assert record["WorkDir"] == job.place.private_dir
    assert record["Command"].startswith(WRAPPER)


def test_the_log_is_followed_while_it_grows(job: Job) -> None:
    job_id = job.held("build_script", b"for i in 1 2 3; do echo line $i; sleep 0.3; done")
    log, times = job.session.follow(job.log("build_script"), 0), list[float]()
    job.slurm.release(job_id)

    def finish_with_the_job() -> None:
        job.ended(job_id)
        log.finish()

    waiter = threading.Thread(target=finish_with_the_job, daemon=True)
    waiter.start()
    got = bytearray()
    for offset, data in log:
        assert offset == len(got)
        got += data
        times.append(time.monotonic())
    waiter.join(30)
    assert bytes(got) == b"line 1\nline 2\nline 3\n"
    assert times[-1] - times[0] > 0.3, "the lines came one by one"
    assert b"".join(data for _, data in _finished(job, "build_script", 7)) == b"line 2\nline 3\n"


def test_a_long_log_comes_whole(job: Job) -> None:
    job_id = job.held("build_script", b"head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
    job.slurm.release(job_id)
    job.ended(job_id)
    size, last = 0, b""
    for offset, data in _finished(job, "build_script", 0):
        assert offset == size
        size, last = size + len(data), data
    assert size == 20_000_005
    assert last.endswith(b"x\nend\n")


@pytest.mark.parametrize("when", ["held", "running"])
def test_a_job_can_be_cancelled(job: Job, when: str) -> None:
    job_id = job.held("build_script", b"sleep 600")
    if when == "running":
        job.slurm.release(job_id)
        job.started(job_id)
    job.slurm.cancel(job_id)
    state = job.ended(job_id)
    assert state.base is BaseState.CANCELLED
    job.slurm.cancel(job_id)


def test_cancelling_what_never_was_is_fine(job: Job) -> None:
    job.slurm.cancel(99_999_999)


def test_a_job_is_found_by_exactly_its_name(job: Job) -> None:
    one, two = job.held("one", b"exit 0"), job.held("two", b"exit 0")
    assert [state.job_id for state in job.slurm.find(job.name("one"))] == [one]
    assert [state.job_id for state in job.slurm.find(job.name("two"))] == [two]
    assert job.slurm.find(job.name("on")) == ()
    assert job.slurm.find("ci-nobody-one") == ()


def test_another_persons_job_is_not_found(job: Job, side: BridgeSide) -> None:
    job.held("one", b"exit 0")
    bob = side.login("bob")
    assert Slurm(bob).find(job.name("one")) == ()
    bob.close()


@pytest.mark.threat("T32")
def test_twins_never_run_at_the_same_time(job: Job) -> None:
    first, second = job.held("one", b"sleep 1.5"), job.held("one", b"sleep 1")
    assert [state.job_id for state in job.slurm.find(job.name("one"))] == [first, second]
    for job_id in (first, second):
        job.slurm.release(job_id)
    end = time.monotonic() + 2 * ENDED_WITHIN
    while time.monotonic() < end:
        states = job.slurm.states([first, second])
        assert sum(state.started and "COMPLETING" not in state.flags for state in states.values()) <= 1
        if all(state.ended for state in states.values()):
            return
        time.sleep(0.05)
    pytest.fail("the twins did not end")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"partition": "nowhere"}, "partition"),
        ({"qos": "nothing"}, "qos"),
        ({"slurm_account": "bio"}, "account"),
        ({"constraint": "unobtainium"}, "feature"),
    ],
    ids=str,
)
def test_slurms_refusal_is_passed_on_in_its_own_words(job: Job, change: dict[str, object], sentence: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        job.held("build_script", b"exit 0", replace(PLAN, **change))  # type: ignore[arg-type]
    assert caught.value.code == "slurm.refused"
    assert sentence in caught.value.title.lower()
    assert "sbatch:" not in caught.value.title
    assert job.slurm.find(job.name("build_script")) == ()


def test_a_person_without_slurm_account_is_refused(side: BridgeSide) -> None:
    session = side.login("mallory")
    place = session.workspace("m" * 26, "/builds", "/builds")
    mallory = Job(session, place, "m" * 26)
    with pytest.raises(RequestRefused, match=r"slurm\.refused"):
        mallory.held("build_script", b"exit 0")
    session.destroy("m" * 26, "/builds", None)
    session.close()


def test_the_poller_tells_the_life_of_a_job(job: Job) -> None:
    poller, told, trouble = Poller(), Queue[JobState](), Queue[BridgeError]()
    poller.start()
    try:
        job_id = job.held("build_script", b"sleep 0.7; exit 3")
        poller.watch(job_id, job.slurm, told.put, trouble.put)
        assert told.get(timeout=10).reason == "JobHeldUser"
        job.slurm.release(job_id)
        poller.hint()
        bases = []
        while not (state := told.get(timeout=ENDED_WITHIN)).ended:
            bases.append(state.base)
        assert BaseState.RUNNING in bases
        assert state.exit_code == 3
        assert trouble.empty()
    finally:
        poller.stop()


def test_slurm_that_is_down_is_an_outage(job: Job, side: BridgeSide) -> None:
    job_id = job.held("build_script", b"exit 0")
    side.realm.stop_service("slurmctld")
    try:
        # Each of Slurm's commands tries for half a minute by itself.
        asks = (lambda: job.state(job_id), lambda: job.slurm.release(job_id), lambda: job.held("two", b"exit 0"))
        with ThreadPoolExecutor(3) as threads:
            errors = [asked.exception(100) for asked in [threads.submit(ask) for ask in asks]]
        assert [(type(error), getattr(error, "code", None)) for error in errors] == [(Outage, "slurm.unreachable")] * 3
    finally:
        side.realm.restart_service("slurmctld")
    job.slurm.release(job_id)
    assert job.ended(job_id).exit_code == 0


def _finished(job: Job, stage: str, offset: int) -> list[tuple[int, bytes]]:
    log = job.session.follow(job.log(stage), offset)
    log.finish()
    return list(log)


def _whole_log(job: Job, stage: str) -> str:
    return b"".join(data for _, data in _finished(job, stage, 0)).decode()
