"""A stage as a Slurm job: recorded before it is released, never submitted twice, followed through every cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from bench import Broker, Reader, Web, refused, wait_until

from bridge.broker.client import BrokerClient
from bridge.errors import BridgeError, Outage, RequestRefused
from bridge.model import Stage, StageKind, StageState
from bridge.runs import slurm_stage
from bridge.runs.feed import HOLD_BYTES
from bridge.runs.live import LiveRun
from bridge.runs.task import StageTask
from tests.fakes import FakeCluster, FakeJob, FakeScript, connection_lost

ONE, TWO = "1" * 32, "2" * 32
SCRIPT = b"#!/bin/bash\nmake\n"


def slurm_away() -> Outage:
    """What the agent says when sbatch was not answered in time."""
    return Outage("slurm.unavailable", "Slurm does not answer.", "Retry.", detail="Unable to contact slurm controller")


@pytest.fixture
def live(web: Web, broker: Broker) -> LiveRun:
    """Alice's run, admitted."""
    return web.open(broker.evidence())


@pytest.fixture
def second(broker: Broker, client: BrokerClient, cluster: FakeCluster) -> Iterator[Web]:
    """The web process after a restart: knows the ledger only."""
    web = Web(broker.ledger, client, cluster)
    yield web
    web.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr("bridge.runs.task.FIRST_PAUSE_SECONDS", 0.01)


def start(web: Web, live: LiveRun, invocation: str = ONE) -> Reader:
    """Begin the stage that holds user code."""
    return Reader(web.runs.start_stage(live, invocation, "build_script", SCRIPT))


def recorded(broker: Broker, live: LiveRun, invocation: str = ONE) -> Stage:
    """The stage as the ledger has it."""
    with broker.ledger.read() as view:
        return view.stage(live.run.run_id, invocation)


def states(broker: Broker) -> list[str]:
    """The states of the stage, as the audit log tells them."""
    return [one["detail"]["state"] for one in broker.records(type="stage")]


def test_a_job_goes_from_intent_to_its_end(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = start(web, live)
    job = cluster.wait_job()
    reader.until(lambda: recorded(broker, live).state is StageState.PENDING)
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"one\n")
    reader.until(lambda: reader.log)
    cluster.write(job.job_id, b"two\n")
    cluster.end(job.job_id)

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("ok", 0)
    assert reader.log == b"one\ntwo\n"
    assert states(broker) == ["intended", "held", "released", "pending", "running", "ended"]
    stage = recorded(broker, live)
    assert (stage.slurm_job_id, stage.node, stage.exit_code) == (job.job_id, "node1", 0)
    assert job.name == f"ci-{live.run.run_id}-build_script"
    assert job.argv[-2:] == (
        "/usr/lib/ci-bridge/ci-bridge-job",
        f"/builds/alice/{live.run.run_id}/private/build_script.sh",
    )
    assert any("node1" in note for note in reader.notes)


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
    began = time.monotonic()
    end = start(web, live).end()

    assert (end["outcome"], end["error"]["code"]) == ("outage", "slurm.unreachable")
    assert time.monotonic() - began < 3
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


ENDINGS = [
    ("COMPLETED", 0, None, "ok", 0, None),
    ("FAILED", 3, None, "script_failed", 3, None),
    ("FAILED", None, 9, "script_failed", 137, None),
    ("TIMEOUT", 0, 15, "refused", None, "slurm.timeout"),
    ("DEADLINE", 0, None, "refused", None, "slurm.timeout"),
    ("OUT_OF_MEMORY", 0, 125, "refused", None, "slurm.out_of_memory"),
    ("CANCELLED by 0", None, 15, "refused", None, "slurm.cancelled"),
    ("NODE_FAIL", 0, None, "outage", None, "slurm.node_failed"),
    ("BOOT_FAIL", 0, None, "outage", None, "slurm.node_failed"),
    ("PREEMPTED", 0, 15, "outage", None, "slurm.node_failed"),
]


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


def _held(broker: Broker, cluster: FakeCluster, live: LiveRun, reader: Reader) -> None:
    """Cancel comes while the job is submitted, and before it is released."""


def _pending(broker: Broker, cluster: FakeCluster, live: LiveRun, reader: Reader) -> None:
    cluster.wait_job()
    reader.until(lambda: recorded(broker, live).state is StageState.PENDING)


def _running(broker: Broker, cluster: FakeCluster, live: LiveRun, reader: Reader) -> None:
    cluster.run(cluster.wait_job().job_id)
    reader.until(lambda: recorded(broker, live).state is StageState.RUNNING)


@pytest.mark.parametrize("reach", [_held, _pending, _running])
def test_a_cancel_reaches_the_job_wherever_it_is(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun,
    reach: Callable[[Broker, FakeCluster, LiveRun, Reader], None],
) -> None:  # fmt: skip
    tasks: list[StageTask] = []
    if reach is _held:
        cluster.on_submit = lambda job: wait_until(lambda: tasks)[0].cancel()
    reader = start(web, live)
    assert reader.task is not None
    tasks.append(reader.task)
    reach(broker, cluster, live, reader)
    if reach is not _held:
        reader.task.cancel()

    assert reader.end()["outcome"] == "cancelled"
    assert recorded(broker, live).state is StageState.CANCELLED
    assert all(job.over for job in cluster.jobs.values())
    assert reach is not _held or cluster.called("release") == []


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
    _running(broker, cluster, live, reader)
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
    _running(broker, cluster, live, reader)
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
    _running(broker, cluster, live, reader) if job.state == "RUNNING" else cluster.run(job.job_id)
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
    _running(broker, cluster, live, reader) if job.state == "RUNNING" else cluster.run(job.job_id)
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


def resume(second: Web, live: LiveRun, reader: Reader, invocation: str = ONE) -> Reader:
    """The executor asks the new process for what it lacks."""
    again = second.runs.authenticate(live.run.run_id, live.session)
    task = second.runs.stage(again, invocation, reader.after, len(reader.log))
    follower = Reader(task, reader.after)
    follower.log = reader.log
    return follower


@pytest.mark.threat("T32")
@pytest.mark.parametrize("reach", [_pending, _running])
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
    _running(broker, cluster, live, reader)
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
    _running(broker, cluster, live, reader)
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
    _running(broker, cluster, live, reader)
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
    _running(broker, cluster, live, reader)
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
    _running(broker, cluster, live, reader)
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
