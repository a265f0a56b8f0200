"""A run that nobody will end is ended: silent executors with no job behind them, and what no process holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from bench import ISSUER, Broker, Reader, Web, refused, wait_until

from bridge.errors import BridgeError, Outage
from bridge.model import RunState, StageKind, StageState
from bridge.oidc.gitlab import Pulse
from bridge.oidc.refusal import job_refused
from bridge.runs.live_run import LiveRun
from bridge.runs.reaping import ORPHAN_GRACE, Reaper
from bridge.runs.stopping import Stopper
from tests.fakes import FakeCluster

ONE = "1" * 32
SILENCE = 900.0


class Answer:
    """``runs.watch.JobStates`` that says one thing."""

    def __init__(self, says: BridgeError | Pulse) -> None:
        self.says = says
        self.asked = 0

    def state(self, job_token: str) -> Pulse:
        """See JobStates."""
        self.asked += 1
        if isinstance(self.says, BridgeError):
            raise self.says
        return self.says


RUNS = Pulse(301, canceling=False)
OVER = job_refused("not_running", "d")
Reaping = Callable[..., Reaper]


@pytest.fixture
def reaper_of(broker: Broker) -> Reaping:
    """Make the loop of a web process, whose GitLab says one thing; looked through by hand."""

    def make(web: Web, says: BridgeError | Pulse = OVER, *, silence: float = SILENCE, later: float = 0) -> Reaper:
        return Reaper(
            broker.ledger,
            web.runs,
            Stopper(web.runs),
            {ISSUER: Answer(says)},
            silence_seconds=silence,
            now=lambda: datetime.now(UTC) + timedelta(seconds=later),
        )

    return make


def _silent(live: LiveRun, seconds: float = SILENCE + 1) -> None:
    live.heard -= seconds


def _state(broker: Broker, live: LiveRun) -> RunState:
    with broker.ledger.read() as view:
        return view.run(live.run.run_id).state


@pytest.mark.parametrize("token", ["job token", None])
def test_a_run_whose_executor_and_job_are_gone_is_ended_with_its_jobs(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, reaper_of: Reaping, token: str | None
) -> None:
    reader = Reader(web.runs.start_stage(live, ONE, "build_script", b"make"))
    job = cluster.wait_job()
    cluster.run(job.job_id)
    _silent(live)
    live.job_token = token
    reaper_of(web).look()
    wait_until(lambda: _state(broker, live) is RunState.ENDED, "the end of the run")

    assert cluster.jobs[job.job_id].state.startswith("CANCELLED")
    assert reader.end()["error"]["code"] == "run.abandoned"
    ends = [one for one in broker.records(type="run") if one.get("code") == "run.abandoned"]
    assert [one["phase"] for one in ends] == ["intent", "ok"]


ALIVE: dict[str, tuple[BridgeError | Pulse, float, float]] = {
    "its job runs": (RUNS, SILENCE + 1, SILENCE),
    "GitLab is silent too": (Outage("gitlab.unreachable", "T.", "R."), SILENCE + 1, SILENCE),
    "it was heard not long ago": (OVER, SILENCE - 60, SILENCE),
    "it is switched off": (OVER, SILENCE * 100, 0),
}


@pytest.mark.parametrize(("says", "seconds", "silence"), ALIVE.values(), ids=ALIVE.keys())
def test_a_run_that_may_be_wanted_goes_on(
    web: Web,
    broker: Broker,
    live: LiveRun,
    reaper_of: Reaping,
    says: BridgeError | Pulse,
    seconds: float,
    silence: float,
) -> None:
    _silent(live, seconds)
    reaper_of(web, says, silence=silence).look()
    assert live.stopped is None
    assert _state(broker, live) is RunState.ADMITTED


def test_another_jobs_token_keeps_no_run_alive(web: Web, live: LiveRun, reaper_of: Reaping) -> None:
    _silent(live)
    reaper_of(web, Pulse(999, canceling=False)).look()
    assert live.stopped is not None
    assert live.stopped.code == "run.abandoned"


def test_every_call_of_the_executor_is_heard(web: Web, live: LiveRun, reaper_of: Reaping) -> None:
    _silent(live)
    assert web.runs.authenticate(live.run.run_id, live.session) is live
    reaper_of(web).look()
    assert live.stopped is None


@pytest.mark.threat("T50")
def test_a_wrong_session_keeps_no_run_alive(web: Web, live: LiveRun, reaper_of: Reaping) -> None:
    _silent(live)
    refused(lambda: web.runs.authenticate(live.run.run_id, live.session + "x"))
    reaper_of(web).look()
    assert live.stopped is not None


def _late(live: LiveRun) -> float:
    return (live.run.not_after + ORPHAN_GRACE - datetime.now(UTC)).total_seconds() + 1


def test_what_no_process_holds_is_written_off_once_its_time_is_long_over(
    web: Web, second: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, reaper_of: Reaping
) -> None:
    web.runs.start_stage(live, ONE, "build_script", b"make")
    cluster.run(cluster.wait_job().job_id)
    wait_until(lambda: web.runs.stage(live, ONE).book.stage and _stage_state(broker, live) is StageState.RUNNING)
    web.stop()
    reaper = reaper_of(second, later=_late(live))
    assert [run.run_id for run in reaper.write_off()] == [live.run.run_id]

    assert _state(broker, live) is RunState.ENDED
    assert _stage_state(broker, live) is StageState.LOST
    (end,) = [one for one in broker.records(type="run") if one.get("code") == "run.abandoned"]
    assert end["phase"] == "failed"
    assert end["detail"] == {"state": "ended", "cluster_cleaned": False, "jobs_not_cancelled": 1}
    (stage,) = broker.records(type="stage", phase="failed")
    assert stage["code"] == "run.abandoned"
    assert reaper.write_off() == []


def _stage_state(broker: Broker, live: LiveRun) -> StageState:
    with broker.ledger.read() as view:
        (stage,) = view.stages(live.run.run_id)
    assert stage.kind is StageKind.SLURM
    return stage.state


def test_a_run_that_is_held_or_has_time_is_not_written_off(
    web: Web, second: Web, broker: Broker, live: LiveRun, reaper_of: Reaping
) -> None:
    assert reaper_of(web, later=_late(live)).write_off() == []
    assert reaper_of(second, later=_late(live) - 60).write_off() == []
    assert _state(broker, live) is RunState.ADMITTED


def test_the_executor_of_a_run_that_was_written_off_hears_that_it_has_ended(
    second: Web, web: Web, live: LiveRun, reaper_of: Reaping
) -> None:
    web.stop()
    reaper_of(second, later=_late(live)).write_off()
    late = second.runs.authenticate(live.run.run_id, live.session)
    assert refused(lambda: second.runs.start_stage(late, ONE, "build_script", b"make")).code == "run.ended"


def test_the_thread_looks_by_itself_and_stops(web: Web, broker: Broker, live: LiveRun) -> None:
    _silent(live)
    reaper = Reaper(broker.ledger, web.runs, Stopper(web.runs), {}, silence_seconds=SILENCE, every_seconds=0.01)
    reaper.start()
    try:
        wait_until(lambda: _state(broker, live) is RunState.ENDED, "the end of the run")
    finally:
        reaper.stop()
