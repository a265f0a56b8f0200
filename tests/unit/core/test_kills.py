"""A kill switch: no admission, no stage and no ticket from its commit on, and what runs is ended and stays ended."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bench import ISSUER, Broker, Reader, Web, refused, wait_until
from test_ticketing import HOST, JOB, put_stage

from bridge.audit import kills
from bridge.broker.client import BrokerClient
from bridge.cluster import poller
from bridge.errors import Outage
from bridge.model import KillScope, KillSwitch, RunState, StageState
from bridge.runs import killing
from bridge.runs import live as live_module
from bridge.runs.killing import KillWatch
from bridge.runs.live_run import LiveRun
from bridge.runs.stopping import Stopper
from bridge.ticketing import END_SECONDS, Use
from tests.fakes import FakeCluster, FakeScript, connection_lost

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
SWITCH = "AAAA-BBBB-CCCC"
TARGETS: dict[KillScope, dict[str, Any]] = {
    KillScope.USER: {"issuer": ISSUER, "number": 101},
    KillScope.ACCOUNT: {"account": "alice"},
    KillScope.PROJECT: {"issuer": ISSUER, "number": 7},
    KillScope.RUNNER: {"issuer": ISSUER, "number": 1},
    KillScope.ISSUER: {"issuer": ISSUER},
    KillScope.ALL: {},
}


def kill(broker: Broker, scope: KillScope = KillScope.USER) -> None:
    """Throw a switch that stops alice."""
    target = {"issuer": None, "number": None, "account": None} | TARGETS[scope]
    switch = KillSwitch(SWITCH, scope, reason="r", actor="root(0)", created_at=datetime.now(UTC), **target)
    with broker.register.begin() as (tx, _):
        tx.kill(switch)


@pytest.fixture(params=TARGETS, ids=str)
def scope(request: pytest.FixtureRequest) -> KillScope:
    """Each kind of switch."""
    found: KillScope = request.param
    return found


@pytest.fixture
def live(web: Web, broker: Broker) -> LiveRun:
    """Alice's run, admitted."""
    return web.open(broker.evidence())


@pytest.fixture
def watch(web: Web, broker: Broker) -> Iterator[KillWatch]:
    """The loop that looks at the switches."""
    watch = KillWatch(broker.ledger, web.register, web.runs, Stopper(web.runs), every_seconds=0.01)
    watch.start()
    yield watch
    watch.stop()


@pytest.mark.threat("T16")
def test_nobody_whom_a_switch_stops_is_admitted(broker: Broker, scope: KillScope) -> None:
    kill(broker, scope)
    error = refused(lambda: broker.admission.admit(broker.evidence()))
    assert error.code == f"killed.{scope.value}"
    assert broker.impersonator.asked == []
    (denial,) = broker.records(type="admission")
    assert (denial["phase"], denial["code"], denial["reference"]) == ("denied", error.code, error.reference)
    assert denial["detail"]["switch"] == SWITCH
    with broker.ledger.read() as view:
        assert view.live_runs() == []


def test_others_are_admitted_and_after_the_lift_everybody(broker: Broker) -> None:
    kill(broker)
    assert broker.admission.admit(broker.evidence(302, 102)).grant.account.name == "bob"
    refused(lambda: broker.admission.admit(broker.evidence()))
    broker.people.killing.lift(broker.people.callers.by_socket(0, "root(0)"), SWITCH, "r")
    assert broker.admission.admit(broker.evidence()).attempt == 1


@pytest.mark.threat("T48")
def test_a_switch_thrown_between_the_decision_and_the_intent_is_heard(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = type(broker.admission)._decide

    def decide_and_kill(*arguments: Any) -> Any:
        grant = decide(*arguments)
        kill(broker)
        return grant

    monkeypatch.setattr(type(broker.admission), "_decide", decide_and_kill)
    assert refused(lambda: broker.admission.admit(broker.evidence())).code == "killed.user"
    assert broker.impersonator.asked == []
    assert broker.records(phase="intent") == []


@pytest.mark.threat("T16")
@pytest.mark.parametrize("path", ["ssh", "login", "claim", "for_node"])
def test_no_ticket_is_made_for_a_run_that_a_switch_stops(broker: Broker, scope: KillScope, path: str) -> None:
    run = broker.admission.admit(broker.evidence())
    put_stage(broker, run.run_id, StageState.RUNNING)
    claim = broker.tickets.claim(HOST, JOB, 20001, "node1")
    broker.impersonator.asked.clear()
    kill(broker, scope)
    asks: dict[str, Callable[[], object]] = {
        "ssh": lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH),
        "login": lambda: broker.tickets.for_run(run.run_id, run.session, Use.LOGIN),
        "claim": lambda: broker.tickets.claim(HOST, JOB, 20001, "node1"),
        "for_node": lambda: broker.tickets.for_node(claim.claim_id),
    }
    error = refused(asks[path])
    assert error.code == f"killed.{scope.value}"
    assert broker.impersonator.asked == []
    (denial,) = broker.records(type="tickets")
    assert (denial["phase"], denial["code"], denial["reference"]) == ("denied", error.code, error.reference)
    assert (denial["run_id"], denial["detail"]["switch"]) == (run.run_id, SWITCH)


def test_the_way_to_end_the_run_stays_open_and_is_short(broker: Broker) -> None:
    run = broker.admission.admit(broker.evidence())
    broker.impersonator.asked.clear()
    kill(broker)
    broker.tickets.for_run(run.run_id, run.session, Use.END)
    assert broker.impersonator.asked == [("alice", ("host/login.realm.test",), END_SECONDS)]
    with broker.ledger.begin() as tx:
        tx.update_run_state(run.run_id, {RunState.ADMITTED}, RunState.ENDED)
    assert refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.END)).code == "run.ended"


def test_no_stage_is_started_before_any_loop_has_seen_the_switch(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    kill(broker)
    assert refused(lambda: web.runs.start_stage(live, ONE, "build_script", b"make")).code == "killed.user"
    assert broker.records(type="stage") == []
    assert cluster.called("submit") == []


@pytest.mark.threat("T16")
def test_a_running_slurm_job_is_cancelled_and_its_executor_told_why(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, watch: KillWatch, scope: KillScope
) -> None:
    reader = Reader(web.runs.start_stage(live, ONE, "build_script", b"make"))
    job = cluster.wait_job()
    cluster.run(job.job_id)
    reader.until(lambda: any("runs on" in note for note in reader.notes))
    kill(broker, scope)
    end = reader.end()

    assert (end["outcome"], end["error"]["code"]) == ("refused", f"killed.{scope.value}")
    assert cluster.jobs[job.job_id].state.startswith("CANCELLED")
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")
    about, done = broker.records(type="run")
    assert (about["phase"], done["phase"]) == ("intent", "ok")
    assert about["code"] == done["code"] == f"killed.{scope.value}"
    assert about["reference"] == done["reference"] == end["error"]["reference"]
    assert about["detail"]["switch"] == done["detail"]["switch"] == SWITCH
    (stage,) = broker.records(type="stage", phase="ok")
    assert (stage["detail"]["state"], stage["code"]) == ("cancelled", f"killed.{scope.value}")
    assert cluster.called("destroy")


def test_slurm_jobs_are_cancelled_before_any_end_is_confirmed(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    web.runs.start_stage(live, ONE, "build_script", b"make")
    job = cluster.wait_job()
    cluster.run(job.job_id)
    kill(broker)
    with broker.ledger.read() as view:
        (switch,) = view.kill_switches()
    web.runs.condemn(live, kills.refusal(switch))
    wait_until(lambda: cluster.jobs[job.job_id].over, "the end of the job")
    assert live.run.state is not RunState.ENDED


def test_a_script_on_the_login_node_is_stopped(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, watch: KillWatch
) -> None:
    cluster.scripts.append(FakeScript())
    cluster.scripts[0].gate = threading.Event()
    reader = Reader(web.runs.start_stage(live, ONE, "get_sources", b"git clone"))
    reader.until(lambda: reader.log)
    kill(broker)
    assert reader.end()["error"]["code"] == "killed.user"
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")


def test_the_runs_of_others_go_on(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, watch: KillWatch
) -> None:
    bobs = web.open(broker.evidence(302, 102))
    kill(broker)
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of alice's run")
    watch.look()
    assert (bobs.stopped, bobs.run.state) == (None, RunState.ADMITTED)


def test_the_executor_that_comes_late_hears_why_and_can_clean_up(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, watch: KillWatch
) -> None:
    task = web.runs.start_stage(live, ONE, "build_script", b"make")
    cluster.wait_job()
    kill(broker)
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")
    back = web.runs.authenticate(live.run.run_id, live.session)
    assert web.runs.stage(back, ONE) is task
    assert Reader(task).end()["error"]["code"] == "killed.user"
    assert refused(lambda: web.runs.start_stage(back, TWO, "after_script", b"x")).code == "killed.user"
    assert web.runs.finish(back) == {"cancelled": [], "complete": True}
    assert web.runs.held() == []


def test_who_never_comes_back_is_forgotten_in_time(
    web: Web, broker: Broker, live: LiveRun, watch: KillWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "LINGER_SECONDS", 0.05)
    kill(broker)
    wait_until(lambda: web.runs.held() == [], "that the run is let go")
    with broker.ledger.read() as view:
        assert view.live_runs() == []


@pytest.mark.threat("T16")
def test_an_end_that_can_not_be_confirmed_is_tried_again_with_tickets_for_that_only(
    web: Web,
    broker: Broker,
    cluster: FakeCluster,
    live: LiveRun,
    watch: KillWatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.runs.stopping.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("bridge.runs.task.FIRST_PAUSE_SECONDS", 0.01)
    web.runs.start_stage(live, ONE, "build_script", b"make")
    job = cluster.wait_job()
    cluster.run(job.job_id)
    live.tickets._bundle = None
    cluster.away = connection_lost()
    cluster.cut()
    kill(broker)
    wait_until(lambda: live.stopped is not None, "that the switch is seen")
    wait_until(lambda: broker.records(type="tickets", phase="ok"), "a try")
    assert live.run.state is not RunState.ENDED
    cluster.away = None
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")
    assert cluster.jobs[job.job_id].state.startswith("CANCELLED")
    assert {one["detail"]["use"] for one in broker.records(type="tickets", phase="ok")} == {"end"}
    assert len(broker.records(type="run", phase="intent")) == 1


@pytest.mark.threat("T16")
def test_a_run_of_an_earlier_process_is_ended_once_its_executor_is_back(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    web.runs.start_stage(live, ONE, "build_script", b"make")
    job = cluster.wait_job()
    cluster.run(job.job_id)
    web.stop()
    kill(broker)
    second = Web(broker.ledger, client, cluster)
    watch = KillWatch(broker.ledger, second.register, second.runs, Stopper(second.runs), every_seconds=0.01)
    watch.start()
    back = second.runs.authenticate(live.run.run_id, live.session)
    wait_until(lambda: back.run.state is RunState.ENDED, "the end of the run")
    assert cluster.jobs[job.job_id].state.startswith("CANCELLED")
    watch.stop()
    second.stop()


def test_a_database_that_fails_does_not_end_the_loop(
    web: Web, broker: Broker, live: LiveRun, watch: KillWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise Outage("db.unavailable", "T.", "R.")

    monkeypatch.setattr(type(broker.ledger), "read", fail)
    wait_until(lambda: len(tried) > 2, "three looks")
    monkeypatch.undo()
    kill(broker)
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")


def test_the_session_of_a_stopped_run_opens_nothing_after_its_end(
    web: Web, broker: Broker, live: LiveRun, watch: KillWatch
) -> None:
    kill(broker)
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")
    for use in Use:
        assert refused(lambda use=use: broker.tickets.for_run(live.run.run_id, live.session, use)).code == "run.ended"
    with broker.ledger.read() as view:
        assert view.session(live.run.run_id).session_hash == hashlib.sha256(live.session.encode()).digest()


@pytest.mark.threat("T16")
def test_a_switch_is_not_looked_for_so_seldom_that_five_seconds_are_not_kept() -> None:
    """The sum of the waits that are ours, as users.md promises it: one look for switches, one at Slurm's queue."""
    assert killing.EVERY_SECONDS + poller.SLOW_SECONDS < 5
