"""A stage as a Slurm job: recorded before it is released, never submitted twice, followed through every cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from bench import Broker, Reader, Web, wait_until
from slurm_example import (
    ENDINGS,
    held_job,
    pending_job,
    recorded,
    running_job,
    slurm_away,
    start,
    states,
)

from bridge.errors import BridgeError, RequestRefused
from bridge.model import StageState
from bridge.runs import slurm_stage
from bridge.runs.feed import HOLD_BYTES
from bridge.runs.live_run import LiveRun
from bridge.runs.places import node_ccache
from bridge.runs.task import StageTask
from tests.fakes import FakeCluster, FakeJob, connection_lost


def test_a_job_goes_from_intent_to_its_end(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    reader.until(lambda: recorded(broker, live).state is StageState.PENDING)
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"one\n")
    reader.until(lambda: reader.log and recorded(broker, live).state is StageState.RUNNING)
    cluster.write(job.job_id, b"two\n")
    cluster.end(job.job_id)

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("ok", 0)
    assert reader.log == b"one\ntwo\n"
    assert states(broker) == ["intended", "held", "released", "pending", "running", "ended"]
    stage = recorded(broker, live)
    assert (stage.slurm_job_id, stage.node, stage.exit_code) == (job.job_id, "node1", 0)
    assert job.name == f"ci-{live.run.run_id}-build_script"
    assert job.argv[-3:] == (
        "/usr/lib/ci-bridge/ci-bridge-job",
        f"/builds/alice/{live.run.run_id}/private/build_script.sh",
        "FILE:/tmp/krb5cc_20001",
    )
    assert any("node1" in note for note in reader.notes)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("DIR:/run/user/%{uid}/krb5cc", "DIR:/run/user/20001/krb5cc"),
        ("KEYRING:persistent:%{uid}", "KEYRING:persistent:20001"),
        ("KCM:%{uid}", "KCM:"),
    ],
)
def test_a_jobs_tools_are_told_of_tickets_in_every_form(live: LiveRun, policy: str, name: str) -> None:
    grant = live.run.grant
    assert node_ccache(replace(grant, cluster=replace(grant.cluster, node_ccache=policy))) == name


@pytest.mark.threat("T32")
def test_a_job_is_on_record_before_it_is_released(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    seen: list[tuple[StageState, int | None]] = []

    def look(job_id: int) -> None:
        stage = recorded(broker, live)
        seen.append((stage.state, stage.slurm_job_id))
        assert cluster.jobs[job_id].held

    cluster.on_release = look
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.end(job.job_id)
    reader.end()
    assert seen == [(StageState.HELD, job.job_id)]


@pytest.mark.threat("T32")
def test_the_intent_is_on_record_before_anything_is_submitted(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    seen: list[str] = []
    cluster.on_submit = lambda job: seen.extend(states(broker))
    reader = start(web, live)
    cluster.end(cluster.wait_job().job_id)
    reader.end()
    assert seen == ["intended"]


@pytest.mark.threat("T32")
@pytest.mark.threat("T43")
def test_a_job_that_can_not_be_recorded_is_never_released(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_stage, "SUBMIT_SECONDS", 0)

    def lose(job: FakeJob) -> None:
        with broker.engine.connect() as connection:
            connection.exec_driver_sql("ALTER TABLE audit RENAME TO gone")
            connection.commit()

    cluster.on_submit = lose
    end = start(web, live).end()
    assert (end["outcome"], end["error"]["code"].partition(".")[0]) == ("outage", "db")
    assert cluster.called("release") == []
    with broker.engine.connect() as connection:
        connection.exec_driver_sql("ALTER TABLE gone RENAME TO audit")
        connection.commit()
    assert web.runs.finish(live)["cancelled"] == [4711]


LOST_REPLIES = {"Slurm is slow": slurm_away, "the connection is lost": connection_lost}


@pytest.mark.threat("T32")
@pytest.mark.parametrize("error", LOST_REPLIES.values(), ids=LOST_REPLIES.keys())
def test_a_lost_reply_of_sbatch_is_made_good_by_name(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, error: Callable[[], BridgeError]
) -> None:
    cluster.fail("submit", error(), after=True)
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.end(job.job_id, exit_code=3)

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("script_failed", 3)
    assert len(cluster.called("submit")) == 1
    verbs = [verb for verb, _ in cluster.calls if verb in ("submit", "find", "release")]
    assert verbs == ["submit", "find", "release"]
    assert any("Trying again" in note for note in reader.notes)


@pytest.mark.threat("T32")
@pytest.mark.parametrize("error", LOST_REPLIES.values(), ids=LOST_REPLIES.keys())
def test_nothing_is_submitted_again_before_slurm_says_that_it_has_nothing(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, error: Callable[[], BridgeError]
) -> None:
    cluster.fail("submit", error(), after=True)
    for _ in range(3):
        cluster.fail("find", slurm_away())
    reader = start(web, live)
    cluster.end(cluster.wait_job().job_id)
    reader.end()
    assert len(cluster.called("submit")) == 1
    assert len(cluster.called("find")) == 4


@pytest.mark.threat("T32")
def test_a_submission_that_never_arrived_is_made_again(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.fail("submit", slurm_away())
    reader = start(web, live)
    cluster.end(cluster.wait_job().job_id)
    assert reader.end()["outcome"] == "ok"
    assert len(cluster.jobs) == 1


@pytest.mark.threat("T32")
def test_a_twin_that_comes_to_slurm_late_never_runs_and_does_not_stay(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    """sbatch gave up, Slurm had nothing when we looked, and did the request after all once we had sent another."""
    cluster.fail("submit", slurm_away())
    cluster.on_submit = lambda job: cluster.add(job.name, job.argv) and None
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.end(job.job_id)

    assert reader.end()["outcome"] == "ok"
    assert cluster.called("release") == [job.job_id]
    assert all(one.over for one in cluster.jobs.values())


@pytest.mark.threat("T32")
def test_slurm_that_stays_away_is_an_outage_in_bounded_time(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_stage, "SUBMIT_SECONDS", 0.1)
    for _ in range(100):
        cluster.fail("submit", slurm_away())
        cluster.fail("find", slurm_away())
    end = start(web, live).end()

    assert (end["outcome"], end["error"]["code"]) == ("outage", "slurm.unreachable")
    assert recorded(broker, live).state is StageState.LOST
    assert cluster.jobs == {}


@pytest.mark.threat("T32")
def test_a_job_that_was_given_up_is_cancelled_by_cleanup(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_stage, "RECONNECT_SECONDS", 0)
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    reader.until(lambda: recorded(broker, live).state is StageState.RUNNING)
    cluster.cut()

    assert reader.end()["error"]["code"] == "login.connection_lost"
    assert recorded(broker, live).state is StageState.LOST
    assert not job.over
    assert web.runs.finish(live)["cancelled"] == [job.job_id]
    assert cluster.jobs[job.job_id].over


def test_what_slurm_refuses_is_refused_with_its_own_words(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    detail = "sbatch: error: Batch job submission failed: Invalid qos specification"
    cluster.fail("submit", RequestRefused("slurm.refused", "Slurm refused.", "Correct it.", detail=detail))
    end = start(web, live).end()

    assert (end["outcome"], end["error"]["code"]) == ("refused", "slurm.refused")
    assert "Invalid qos specification" in end["error"]["title"]
    (failed,) = broker.records(type="stage", phase="failed")
    assert (failed["code"], failed["reference"]) == ("slurm.refused", end["error"]["reference"])


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "outcome", "told", "code"), ENDINGS, ids=[f"{row[0]} {row[1]}" for row in ENDINGS]
)
def test_the_end_of_a_job_is_told_and_recorded_for_what_it_is(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun,
    state: str, exit_code: int | None, signal: int | None, outcome: str, told: int | None, code: str | None,
) -> None:  # fmt: skip
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"last words\n")
    cluster.end(job.job_id, state, exit_code, signal)
    end = reader.end()

    assert (end["outcome"], end["exit_code"]) == (outcome, told)
    assert (end["error"] or {}).get("code") == code
    assert reader.log == b"last words\n"
    assert recorded(broker, live).state is StageState.ENDED
    last = broker.records(type="stage")[-1]
    assert (last["phase"], last.get("code")) == ("ok" if code is None else "failed", code)


@pytest.mark.parametrize("reach", [held_job, pending_job, running_job])
def test_a_cancel_reaches_the_job_wherever_it_is(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun,
    reach: Callable[[Broker, FakeCluster, LiveRun, Reader], None],
) -> None:  # fmt: skip
    tasks: list[StageTask] = []
    if reach is held_job:
        cluster.on_submit = lambda job: wait_until(lambda: tasks)[0].cancel()
    reader = start(web, live)
    assert reader.task is not None
    tasks.append(reader.task)
    reach(broker, cluster, live, reader)
    if reach is not held_job:
        reader.task.cancel()

    assert reader.end()["outcome"] == "cancelled"
    assert recorded(broker, live).state is StageState.CANCELLED
    assert all(job.over for job in cluster.jobs.values())
    assert reach is not held_job or cluster.called("release") == []


def test_a_cancel_before_anything_was_submitted_submits_nothing(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    task = web.runs._task
    reader = None

    def cancelled_at_once(*arguments: object, **names: object) -> StageTask:
        made = task(*arguments, **names)  # type: ignore[arg-type]
        made.cancel()
        return made

    web.runs._task = cancelled_at_once  # type: ignore[method-assign]
    reader = start(web, live)
    assert reader.end()["outcome"] == "cancelled"
    assert cluster.jobs == {}


@pytest.mark.parametrize("verb", ["cancel", "state"])
def test_a_cancel_survives_a_connection_that_is_lost(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, verb: str
) -> None:
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    cluster.fail(verb, connection_lost())
    assert reader.task is not None
    reader.task.cancel()

    assert reader.end()["outcome"] == "cancelled"
    assert all(job.over for job in cluster.jobs.values())


def test_a_cancel_that_slurm_does_not_confirm_is_an_outage(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_stage, "CONFIRM_SECONDS", 0.05)
    monkeypatch.setattr("tests.fakes.FakeLoginNode.cancel", lambda node, job_id, signal=None: None)
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    assert reader.task is not None
    reader.task.cancel()
    assert reader.end()["error"]["code"] == "slurm.cancel_unconfirmed"


def test_cuts_lose_and_double_nothing(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    said = b""
    for number in range(8):
        line = f"line {number}\n".encode() * 100
        said += line
        cluster.write(job.job_id, line)
        if number % 2:
            cluster.cut()
        reader.until(partial(reader.has, len(said)))
    cluster.end(job.job_id)

    assert reader.end()["outcome"] == "ok"
    assert reader.log == said
    assert len(cluster.called("submit")) == len(cluster.called("release")) == 1


def test_a_cut_while_the_executor_is_behind_doubles_nothing(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    said = b"".join(f"{number:07}\n".encode() for number in range(3 * HOLD_BYTES // 8))
    cluster.write(job.job_id, said)
    assert reader.task is not None
    feed = reader.task.feed
    wait_until(lambda: feed._held >= HOLD_BYTES)
    cluster.cut()
    cluster.end(job.job_id)
    # Nobody follows from the old place while a piece from there still waits for the executor.
    assert not reader.task.wait(0.3)
    assert len(cluster.called("follow")) == 1

    assert reader.end()["outcome"] == "ok"
    assert reader.log == said


@pytest.mark.parametrize("moment", ["follow.read", "follow.drain"])
def test_the_tail_of_the_log_is_not_lost_with_the_connection(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, moment: str
) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"head\n")
    reader.until(lambda: reader.log)
    with cluster.changed:
        cluster.stalled = moment == "follow.drain"
        cluster.fail(moment, connection_lost())
        cluster.write(job.job_id, b"tail\n")
        cluster.end(job.job_id)

    assert reader.end()["outcome"] == "ok"
    assert reader.log == b"head\ntail\n"


def test_a_log_that_can_not_be_read_is_said(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.fail("follow.read", RequestRefused("agent.not_a_file", "The log is no file.", "Look."))
    cluster.write(job.job_id, b"x")
    assert reader.end()["error"]["code"] == "agent.not_a_file"


def test_slurm_that_is_away_for_a_while_ends_nothing(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    running_job(broker, cluster, live, reader) if job.state == "RUNNING" else cluster.run(job.job_id)
    for _ in range(5):
        cluster.fail("state", slurm_away())
    wait_until(lambda: not cluster._faults)
    cluster.end(job.job_id)
    assert reader.end()["outcome"] == "ok"


def test_a_job_that_slurm_forgot_is_lost_after_a_while(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_stage, "MISSING_SECONDS", 0.1)
    reader = start(web, live)
    job = cluster.wait_job()
    running_job(broker, cluster, live, reader) if job.state == "RUNNING" else cluster.run(job.job_id)
    reader.until(lambda: recorded(broker, live).state is StageState.RUNNING)
    with cluster.changed:
        del cluster.jobs[job.job_id]

    assert reader.end()["error"]["code"] == "slurm.job_unknown"
    assert recorded(broker, live).state is StageState.LOST


def test_a_requeue_and_pending_reasons_are_told(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.update(job.job_id, reason="Resources")
    reader.until(lambda: any("waiting: Resources" in note for note in reader.notes))
    cluster.run(job.job_id)
    reader.until(lambda: recorded(broker, live).state is StageState.RUNNING)
    cluster.update(job.job_id, state="PENDING", nodes="", reason="BeginTime")
    reader.until(lambda: recorded(broker, live).state is StageState.PENDING)
    cluster.run(job.job_id, "node2")
    reader.until(lambda: any("node2" in note for note in reader.notes))
    cluster.end(job.job_id)
    assert reader.end()["outcome"] == "ok"
