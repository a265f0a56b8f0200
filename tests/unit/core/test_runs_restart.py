"""After a restart or a crash the next process of web takes each job up where it is, and the end of a run clears all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import Broker, Reader, Web, refused, wait_until
from slurm_example import (
    ENDINGS,
    ONE,
    TWO,
    pending_job,
    recorded,
    running_job,
    slurm_away,
    start,
    states,
)

from bridge.model import Stage, StageKind, StageState
from bridge.runs.feed import HOLD_BYTES
from bridge.runs.live_run import LiveRun
from tests.fakes import FakeCluster, FakeJob, FakeScript, connection_lost


def resume(second: Web, live: LiveRun, reader: Reader, invocation: str = ONE) -> Reader:
    """The executor asks the new process for what it lacks."""
    again = second.runs.authenticate(live.run.run_id, live.session)
    task = second.runs.stage(again, invocation, reader.after, len(reader.log))
    follower = Reader(task, reader.after)
    follower.log = reader.log
    return follower


@pytest.mark.threat("T32")
@pytest.mark.parametrize("reach", [pending_job, running_job])
def test_a_restart_of_web_takes_the_job_up_where_it_was(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun,
    reach: Callable[[Broker, FakeCluster, LiveRun, Reader], None],
) -> None:  # fmt: skip
    reader = start(web, live)
    reach(broker, cluster, live, reader)
    job = next(iter(cluster.jobs.values()))
    cluster.write(job.job_id, b"before\n")
    reader.until(lambda: reader.log)
    cluster.write(job.job_id, b"not read\n")
    before = recorded(broker, live).state
    web.stop()
    assert reader.task is not None
    wait_until(lambda: reader.task and reader.task.over)
    assert recorded(broker, live).state is before

    cluster.write(job.job_id, b"meanwhile\n")
    reader = resume(second, live, reader)
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"after\n")
    cluster.end(job.job_id, "FAILED", 3)
    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("script_failed", 3)
    assert reader.log == b"before\nnot read\nmeanwhile\nafter\n"
    assert len(cluster.called("submit")) == len(cluster.called("release")) == 1


ENDED_MEANWHILE = [row for row in ENDINGS if row[0] != "DEADLINE"]


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "outcome", "told", "code"),
    ENDED_MEANWHILE, ids=[f"{row[0]} {row[1]}" for row in ENDED_MEANWHILE],
)  # fmt: skip
@pytest.mark.parametrize("told_before", [False, True], ids=["ends unseen", "ends unheard"])
def test_an_end_that_the_executor_did_not_hear_of_is_told_by_the_next_process(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, told_before: bool,
    state: str, exit_code: int | None, signal: int | None, outcome: str, told: int | None, code: str | None,
) -> None:  # fmt: skip
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    (job,) = cluster.jobs.values()
    cluster.write(job.job_id, b"said\n")
    reader.until(lambda: reader.log)
    if not told_before:
        web.stop()
    cluster.write(job.job_id, b"unheard\n")
    cluster.end(job.job_id, state, exit_code, signal)
    if told_before:
        assert reader.task is not None
        assert reader.task.wait(10)
        web.stop()
    reader = resume(second, live, reader)
    end = reader.end()

    assert (end["outcome"], end["exit_code"], (end["error"] or {}).get("code")) == (outcome, told, code)
    assert reader.log == b"said\nunheard\n"
    assert recorded(broker, live).state is StageState.ENDED


def test_a_cancelled_stage_stays_cancelled_for_the_next_process(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    assert reader.task is not None
    reader.task.cancel()
    assert reader.task.wait(10)
    web.stop()
    assert resume(second, live, reader).end()["outcome"] == "cancelled"


def crash(web: Web, cluster: FakeCluster) -> None:
    """Let go of everything as SIGKILL does: nothing is recorded, nobody says goodbye."""
    web.runs.close()
    cluster.cut()


@pytest.mark.threat("T32")
def test_a_crash_after_sbatch_and_before_the_record_adopts_the_job(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    def die(job: FakeJob) -> None:
        crash(web, cluster)
        raise connection_lost()

    cluster.on_submit = die
    reader = start(web, live)
    assert reader.task is not None
    assert reader.task.wait(10)
    assert recorded(broker, live).state is StageState.INTENDED
    twin = cluster.add(f"ci-{live.run.run_id}-build_script")

    reader = resume(second, live, reader)
    job = cluster.wait_job()
    assert job.job_id == 4711
    cluster.end(job.job_id)
    assert reader.end()["outcome"] == "ok"
    assert twin.over
    assert cluster.called("release") == [4711]
    assert len(cluster.called("submit")) == 1


@pytest.mark.threat("T32")
def test_a_crash_before_sbatch_is_an_outage_and_nothing_runs(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    def die(node: object, path: str, data: bytes, mode: int) -> None:
        crash(web, cluster)
        raise connection_lost()

    put = cluster.connect().__class__.put
    try:
        cluster.nodes[0].__class__.put = die  # type: ignore[method-assign, assignment]
        reader = start(web, live)
        assert reader.task is not None
        assert reader.task.wait(10)
    finally:
        cluster.nodes[0].__class__.put = put  # type: ignore[method-assign]
    end = resume(second, live, reader).end()

    assert (end["outcome"], end["error"]["code"]) == ("outage", "stage.script_lost")
    assert recorded(broker, live).state is StageState.LOST
    assert cluster.jobs == {}


@pytest.mark.threat("T32")
@pytest.mark.parametrize("late", [False, True], ids=["still held", "released meanwhile"])
def test_a_crash_before_the_release_is_on_record_releases_it_once(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, late: bool
) -> None:
    def die(job_id: int) -> None:
        cluster.on_release = lambda job_id: None
        crash(web, cluster)
        if late:
            cluster.update(job_id, held=False, reason="Priority")
        raise connection_lost()

    cluster.on_release = die
    reader = start(web, live)
    assert reader.task is not None
    assert reader.task.wait(10)
    assert recorded(broker, live).state is StageState.HELD

    reader = resume(second, live, reader)
    cluster.end(cluster.wait_job().job_id)
    assert reader.end()["outcome"] == "ok"
    assert len(cluster.jobs) == 1


@pytest.mark.threat("T32")
def test_the_same_call_after_a_crash_looks_for_the_job_before_it_submits_one(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    """The executor's PUT was not answered: it sends it again, with the script, to the next process."""

    def die(job: FakeJob) -> None:
        cluster.on_submit = lambda job: None
        crash(web, cluster)
        raise connection_lost()

    cluster.on_submit = die
    reader = start(web, live)
    assert reader.task is not None
    assert reader.task.wait(10)
    again = start(second, second.runs.authenticate(live.run.run_id, live.session))
    cluster.end(cluster.wait_job().job_id)

    assert again.end()["outcome"] == "ok"
    assert len(cluster.jobs) == len(cluster.called("submit")) == 1
    assert states(broker).count("intended") == 1


@pytest.mark.threat("T32")
def test_the_same_call_after_a_crash_before_sbatch_submits_the_script_that_it_brings(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    stage = Stage(
        live.run.run_id, ONE, "build_script", StageKind.SLURM, StageState.INTENDED, None,
        f"ci-{live.run.run_id}-build_script", None, None,
    )  # fmt: skip
    with broker.ledger.begin() as tx:
        tx.add_stage(stage)
    reader = start(second, second.runs.authenticate(live.run.run_id, live.session))
    cluster.end(cluster.wait_job().job_id)
    assert reader.end()["outcome"] == "ok"
    assert [verb for verb, _ in cluster.calls if verb in ("find", "submit")] == ["find", "submit"]


def test_a_cancel_through_the_next_process_reaches_the_job(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    web.stop()
    reader = resume(second, live, reader)
    assert reader.task is not None
    reader.task.cancel()
    assert reader.end()["outcome"] == "cancelled"


@pytest.mark.threat("T32")
def test_finish_cancels_what_a_crash_left_and_puts_its_end_on_record(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    crash(web, cluster)
    twin = cluster.add(f"ci-{live.run.run_id}-build_script")
    other = cluster.add("ci-somebody-else")

    answer = second.runs.finish(second.runs.authenticate(live.run.run_id, live.session))
    assert answer == {"cancelled": [4711, twin.job_id], "complete": True}
    assert not other.over
    assert recorded(broker, live).state is StageState.CANCELLED
    assert broker.records(type="stage")[-1]["code"] == "run.ended"


def test_finish_frees_a_job_whose_output_nobody_reads(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"x" * (3 * HOLD_BYTES))
    assert reader.task is not None
    feed = reader.task.feed
    wait_until(lambda: feed._held >= HOLD_BYTES)

    assert web.runs.finish(live)["complete"]
    assert cluster.jobs[job.job_id].over
    assert recorded(broker, live).state is StageState.CANCELLED


def test_finish_while_slurm_is_away_is_an_outage_and_can_be_asked_again(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    crash(web, cluster)
    again = second.runs.authenticate(live.run.run_id, live.session)
    cluster.fail("find", slurm_away())

    assert refused(lambda: second.runs.finish(again)).code == "slurm.unreachable"
    assert second.runs.finish(again)["cancelled"] == [4711]


def test_finish_after_an_end_asks_slurm_nothing(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = start(web, live)
    cluster.end(cluster.wait_job().job_id)
    reader.end()
    assert web.runs.finish(live) == {"cancelled": [], "complete": True}
    assert cluster.called("find") == []


@pytest.mark.parametrize("name", ["after_script", "get_sources"])
def test_only_the_users_script_goes_to_slurm(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, name: str
) -> None:
    cluster.scripts.append(FakeScript())
    assert web.runs.start_stage(live, ONE, name, b"x").kind is StageKind.LOGIN
    assert web.runs.start_stage(live, TWO, "step_test", b"x").kind is StageKind.SLURM
