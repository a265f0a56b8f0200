"""Runs on the login node: prepared, staged, cancelled, finished; and what is on record of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from bench import Broker, Reader, Web, refused, wait_until
from sqlalchemy import text

from bridge.broker.client import BrokerClient
from bridge.cluster.node import Exit
from bridge.errors import Conflict, NotFound, Outage, PolicyRefused, TokenRefused
from bridge.model import RunId, RunState, StageState
from bridge.runs.feed import HOLD_BYTES
from bridge.runs.live_run import LiveRun
from tests.fakes import FakeCluster, FakeScript, connection_lost

ONE, TWO = "1" * 32, "2" * 32


def stage_state(broker: Broker, live: LiveRun, invocation: str = ONE) -> StageState:
    """What the ledger says of a stage."""
    with broker.ledger.read() as view:
        return view.stage(live.run.run_id, invocation).state


def run_state(broker: Broker, live: LiveRun) -> RunState:
    """What the ledger says of the run."""
    with broker.ledger.read() as view:
        return view.run(live.run.run_id).state


def test_an_admitted_run_says_what_the_executor_needs(web: Web, broker: Broker) -> None:
    answer = web.runs.open(broker.evidence(scheduler_parameters="--nodes=2 --time=10"))

    run_id = answer["run_id"]
    assert answer["builds_dir"] == f"/builds/alice/{run_id}/builds"
    assert answer["cache_dir"] == "/builds/.cache/alice"
    assert (answer["account"], answer["uid"], answer["principal"]) == ("alice", 20001, "alice@REALM.TEST")
    assert answer["plan"] == {"partition": "ci", "nodes": 2, "time_minutes": 10}
    assert answer["policy_ids"] == ["people-on-protected-refs"]
    (intent,) = broker.records(type="admission", phase="intent")
    assert intent["reference"] == answer["reference"]


def test_what_was_cut_down_is_said_with_the_answer(web: Web, broker: Broker) -> None:
    broker.directory.accounts["alice"] = replace(broker.directory.accounts["alice"], groups=("chem", "gpu"))
    answer = web.runs.open(broker.evidence(scheduler_parameters="--partition=gpu --gpus=16"))

    assert answer["plan"]["gpus"] == 8
    assert answer["notes"] == ["The job asked for 16 gpus and gets 8, the most that the limit 'gpu' allows."]


def test_prepare_makes_the_workspace_and_puts_the_tickets(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = Reader(web.runs.start_stage(live, ONE, "prepare", b""))

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("ok", 0)
    assert cluster.called("workspace") == [live.run.run_id]
    cache = bytes(cluster.files["FILE:/tmp/krb5cc_ci_20001"])
    assert b"lustre_mds" in cache
    assert b"host" not in cache
    assert b"krbtgt" not in cache
    assert run_state(broker, live) is RunState.PREPARED
    assert stage_state(broker, live) is StageState.ENDED
    assert any("Workspace ready" in note for note in reader.notes)


@pytest.mark.threat("T17")
@pytest.mark.threat("T18")
@pytest.mark.parametrize(("user", "uid"), [("alice", 20009), ("root", 20001), ("alice", 0)])
def test_prepare_stops_where_the_account_is_another(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, user: str, uid: int
) -> None:
    cluster.user, cluster.uid = user, uid
    end = Reader(web.runs.start_stage(live, ONE, "prepare", b"")).end()

    assert (end["outcome"], end["error"]["code"]) == ("outage", "login.wrong_account")
    assert cluster.called("put_tickets") == []
    assert stage_state(broker, live) is StageState.LOST


def test_a_kdc_that_refuses_in_prepare_is_told_with_its_own_code_and_reference(
    web: Web, broker: Broker, live: LiveRun
) -> None:
    broker.impersonator.error = PolicyRefused("kerberos.locked", "The principal is locked.", "Ask.", account="alice")
    end = Reader(web.runs.start_stage(live, ONE, "prepare", b"")).end()

    assert (end["outcome"], end["error"]["code"]) == ("refused", "kerberos.locked")
    (failed,) = broker.records(type="tickets", phase="failed")
    assert end["error"]["reference"] == failed["reference"]


@pytest.mark.parametrize(
    ("how", "outcome", "code"),
    [
        (Exit(0, None), "ok", 0),
        (Exit(3, None), "script_failed", 3),
        (Exit(255, None), "script_failed", 255),
        (Exit(None, 9), "script_failed", 137),
        (Exit(None, 15), "script_failed", 143),
    ],
    ids=["0", "3", "255", "SIGKILL", "SIGTERM"],
)
def test_a_script_on_the_login_node_ends_as_it_ended(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, how: Exit, outcome: str, code: int
) -> None:
    cluster.scripts.append(FakeScript((b"one\n", b"two\n"), how))
    reader = Reader(web.runs.start_stage(live, ONE, "get_sources", b"git clone"))

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == (outcome, code)
    assert reader.log == b"one\ntwo\n"
    assert cluster.called("run") == [b"git clone"]
    intent, *events, end = broker.records(type="stage")
    assert (intent["phase"], end["phase"], end["exit_code"]) == ("intent", "ok", code)
    assert [one["detail"]["state"] for one in (intent, *events, end)] == ["intended", "running", "ended"]
    assert len({one["reference"] for one in (intent, *events, end)}) == 1
    assert "git clone" not in str(broker.records())


def test_a_cancel_ends_the_script_and_is_confirmed(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.scripts.append(FakeScript(gate=threading.Event()))
    task = web.runs.start_stage(live, ONE, "get_sources", b"sleep")
    reader = Reader(task)
    reader.until(lambda: reader.log)
    task.cancel()

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("cancelled", 143)
    assert stage_state(broker, live) is StageState.CANCELLED


def test_a_connection_that_is_lost_ends_the_script_as_an_outage(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.scripts.append(FakeScript(gate=threading.Event()))
    reader = Reader(web.runs.start_stage(live, ONE, "get_sources", b"sleep"))
    reader.until(lambda: reader.log)
    cluster.cut()

    assert (reader.end()["outcome"], reader.end()["error"]["code"]) == ("outage", "login.connection_lost")
    assert stage_state(broker, live) is StageState.LOST


def test_a_process_that_lets_go_puts_no_end_on_record(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.scripts.append(FakeScript(gate=threading.Event()))
    task = web.runs.start_stage(live, ONE, "get_sources", b"sleep")
    wait_until(lambda: cluster.called("run"))
    web.runs.close()
    cluster.cut()

    assert task.wait(10)
    assert stage_state(broker, live) is StageState.RUNNING


def test_the_same_call_again_starts_nothing(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    cluster.scripts.append(FakeScript())
    first = web.runs.start_stage(live, ONE, "get_sources", b"x")
    again = web.runs.start_stage(live, ONE, "get_sources", b"x")

    assert first is again
    Reader(first).end()
    assert len(cluster.called("run")) == 1
    assert len(broker.records(type="stage", phase="intent")) == 1


def test_the_same_call_again_after_a_restart_starts_nothing_either(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.scripts.append(FakeScript(gate=threading.Event()))
    reader = Reader(web.runs.start_stage(live, ONE, "get_sources", b"x"))
    reader.until(lambda: reader.log)
    web.stop()
    second = Web(broker.ledger, client, cluster)
    task = second.runs.start_stage(second.runs.authenticate(live.run.run_id, live.session), ONE, "get_sources", b"x")

    end = Reader(task).end()
    assert (end["outcome"], end["error"]["code"]) == ("outage", "stage.interrupted")
    assert len(cluster.called("run")) == 1
    assert len(broker.records(type="stage", phase="intent")) == 1
    wait_until(lambda: stage_state(broker, live) is StageState.LOST)
    second.stop()


def test_an_invocation_belongs_to_one_stage(web: Web, cluster: FakeCluster, live: LiveRun) -> None:
    cluster.scripts.append(FakeScript())
    web.runs.start_stage(live, ONE, "get_sources", b"x").wait(5)
    live.tasks.clear()
    error = refused(lambda: web.runs.start_stage(live, ONE, "restore_cache", b"x"))
    assert isinstance(error, Conflict)
    assert error.code == "stage.invocation"


@pytest.mark.threat("T43")
def test_nothing_runs_when_the_intent_can_not_be_recorded(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    with broker.engine.connect() as connection:
        connection.execute(text("DROP TABLE audit"))
        connection.commit()
    assert refused(lambda: web.runs.start_stage(live, ONE, "get_sources", b"x")).code.startswith("db.")
    assert cluster.called("run") == []
    assert live.tasks == {}


@pytest.mark.threat("T42")
def test_the_executor_hears_of_the_end_even_when_the_ledger_is_down(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    gate = threading.Event()
    cluster.scripts.append(FakeScript(gate=gate))
    reader = Reader(web.runs.start_stage(live, ONE, "get_sources", b"x"))
    reader.until(lambda: reader.log)
    with broker.engine.connect() as connection:
        connection.execute(text("DROP TABLE audit"))
        connection.commit()
    gate.set()

    assert (reader.end()["outcome"], reader.end()["error"]["code"].partition(".")[0]) == ("outage", "db")


def test_finish_ends_what_runs_and_clears_the_login_node(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    Reader(web.runs.start_stage(live, ONE, "prepare", b"")).end()
    cluster.scripts.append(FakeScript(gate=threading.Event()))
    task = web.runs.start_stage(live, TWO, "get_sources", b"sleep")
    wait_until(lambda: cluster.called("run"))

    assert web.runs.finish(live) == {"cancelled": [], "complete": True}
    assert task.over
    assert stage_state(broker, live, TWO) is StageState.CANCELLED
    assert cluster.called("destroy") == [(live.run.run_id, "FILE:/tmp/krb5cc_ci_20001")]
    assert cluster.files == {}
    assert run_state(broker, live) is RunState.ENDED
    assert [one["detail"]["state"] for one in broker.records(type="run")] == ["prepared", "ended"]


def test_finish_again_changes_nothing_and_holds_nothing(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    web.runs.finish(live)
    for _ in range(3):
        again = web.runs.authenticate(live.run.run_id, live.session)
        assert web.runs.finish(again) == {"cancelled": [], "complete": True}

    assert len(broker.records(type="run")) == 1
    assert len(cluster.called("destroy")) == 1
    assert web.runs._live == {}
    assert [slot.leases for slot in web.pool._slots.values()] == [0]


def test_finish_frees_a_stage_whose_output_nobody_reads(web: Web, cluster: FakeCluster, live: LiveRun) -> None:
    cluster.scripts.append(FakeScript((b"x" * (HOLD_BYTES // 2),) * 6))
    task = web.runs.start_stage(live, ONE, "get_sources", b"yes")
    wait_until(lambda: task.feed._held >= HOLD_BYTES)

    assert web.runs.finish(live)["complete"]
    assert task.over


def test_finish_while_the_login_node_is_away_is_an_outage_and_can_be_asked_again(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    Reader(web.runs.start_stage(live, ONE, "prepare", b"")).end()
    cluster.cut()
    cluster.away = Outage("ssh.unreachable", "The login node is away.", "Retry.")
    for _ in range(2):
        assert isinstance(refused(lambda: web.runs.finish(live)), Outage)
    assert run_state(broker, live) is RunState.PREPARED

    cluster.away = None
    assert web.runs.finish(live)["complete"]
    assert run_state(broker, live) is RunState.ENDED
    assert cluster.files == {}


def test_finish_that_breaks_off_in_the_middle_can_be_asked_again(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.fail("destroy", connection_lost())
    assert refused(lambda: web.runs.finish(live)).code == "login.connection_lost"
    assert run_state(broker, live) is RunState.ADMITTED
    assert web.runs.finish(live)["complete"]


def test_nothing_starts_once_the_end_was_asked_for(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.fail("destroy", connection_lost())
    refused(lambda: web.runs.finish(live))
    assert refused(lambda: web.runs.start_stage(live, ONE, "get_sources", b"x")).code == "run.ended"
    web.runs.finish(live)
    assert refused(lambda: web.runs.start_stage(live, ONE, "get_sources", b"x")).code == "run.ended"
    assert refused(lambda: web.runs.stage(live, ONE)).code == "run.ended"
    assert cluster.called("run") == []


def test_another_process_that_ended_the_run_is_believed(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    other = Web(broker.ledger, client, cluster)
    other.runs.finish(other.runs.authenticate(live.run.run_id, live.session))
    other.stop()
    assert refused(lambda: web.runs.start_stage(live, ONE, "get_sources", b"x")).code == "run.ended"
    assert cluster.called("run") == []


@pytest.mark.threat("T23")
def test_the_tickets_on_the_login_node_go_with_the_accounts_last_run(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    other = web.open(broker.evidence(job_id=302))
    Reader(web.runs.start_stage(live, ONE, "prepare", b"")).end()
    Reader(web.runs.start_stage(other, ONE, "prepare", b"")).end()

    web.runs.finish(live)
    assert "FILE:/tmp/krb5cc_ci_20001" in cluster.files
    web.runs.finish(other)
    assert cluster.files == {}


@pytest.mark.threat("T23")
def test_two_runs_that_end_together_leave_no_tickets(web: Web, broker: Broker, cluster: FakeCluster) -> None:
    lives = [web.open(broker.evidence(job_id=job_id)) for job_id in (301, 302)]
    Reader(web.runs.start_stage(lives[0], ONE, "prepare", b"")).end()
    meeting = threading.Barrier(2, timeout=10)
    destroy = cluster.nodes[0].__class__.destroy

    def together(node: object, *arguments: object) -> None:
        meeting.wait()
        destroy(node, *arguments)  # type: ignore[arg-type]

    for node in cluster.nodes:
        node.destroy = together.__get__(node)  # type: ignore[attr-defined, method-assign]
    threads = [threading.Thread(target=web.runs.finish, args=(live,)) for live in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert cluster.files == {}


@pytest.mark.threat("T23")
def test_a_run_whose_executor_never_came_back_keeps_no_tickets_alive(
    web: Web, broker: Broker, cluster: FakeCluster
) -> None:
    broker.clock.shift = timedelta(hours=-2)
    web.open(broker.evidence(job_id=300))
    broker.clock.shift = timedelta(0)
    live = web.open(broker.evidence(job_id=301))
    Reader(web.runs.start_stage(live, ONE, "prepare", b"")).end()
    web.runs.finish(live)
    assert cluster.files == {}


@pytest.mark.threat("T50")
def test_a_run_is_shown_only_to_its_session(web: Web, broker: Broker, live: LiveRun) -> None:
    other = web.open(broker.evidence(job_id=302, user_id=102))
    assert web.runs.authenticate(live.run.run_id, live.session) is live
    errors = [
        refused(partial(web.runs.authenticate, run_id, session))
        for run_id, session in [
            (live.run.run_id, other.session),
            (live.run.run_id, ""),
            (live.run.run_id, live.session[:-1]),
            (live.run.run_id, "\xe4\u20ac"),
            (RunId("z" * 26), live.session),
        ]
    ]
    assert {(type(error), error.code, error.title, error.remedy) for error in errors} == {
        (TokenRefused, "session.invalid", errors[0].title, errors[0].remedy)
    }


def test_a_restart_knows_the_session_and_gets_fresh_tickets(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    web.stop()
    second = Web(broker.ledger, client, cluster)
    again = second.runs.authenticate(live.run.run_id, live.session)
    cluster.scripts.append(FakeScript())

    assert Reader(second.runs.start_stage(again, ONE, "get_sources", b"x")).end()["outcome"] == "ok"
    assert [one["detail"]["use"] for one in broker.records(type="tickets", phase="intent")] == ["ssh", "login"]
    second.stop()


def test_two_requests_after_a_restart_share_one_run(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    second = Web(broker.ledger, client, cluster)
    gate, found = threading.Barrier(8), []

    def ask() -> None:
        gate.wait()
        found.append(second.runs.authenticate(live.run.run_id, live.session))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len({id(one) for one in found}) == 1
    assert [slot.leases for slot in second.pool._slots.values()] == [1]
    second.stop()


def test_the_runners_retry_through_another_process_gets_its_new_session_everywhere(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster
) -> None:
    evidence = broker.evidence()
    first = web.open(evidence)
    other = Web(broker.ledger, client, cluster)
    second = other.open(evidence)

    here = web.runs.authenticate(second.run.run_id, second.session)
    assert (here.session, here.run.attempt, first.run.attempt) == (second.session, 2, 1)
    assert Reader(web.runs.start_stage(here, ONE, "prepare", b"")).end()["outcome"] == "ok"
    other.stop()


def test_the_runners_retry_takes_over_what_the_first_try_began(web: Web, broker: Broker, cluster: FakeCluster) -> None:
    evidence = broker.evidence()
    first = web.open(evidence)
    cluster.scripts.append(FakeScript(gate=threading.Event()))
    task = web.runs.start_stage(first, ONE, "get_sources", b"sleep")
    wait_until(lambda: cluster.called("run"))  # a stage that has not begun is refused, not taken over
    second = web.open(evidence)
    web.runs.finish(second)

    assert task.over
    assert [slot.leases for slot in web.pool._slots.values()] == [0]


def test_an_unknown_stage_is_not_found(web: Web, live: LiveRun) -> None:
    assert isinstance(refused(lambda: web.runs.stage(live, TWO)), NotFound)


def test_readiness_needs_broker_and_ledger(web: Web, broker: Broker) -> None:
    web.runs.check_ready()
    with broker.engine.connect() as connection:
        connection.execute(text("DROP TABLE audit_head"))
        connection.commit()
    assert isinstance(refused(web.runs.check_ready), Outage)


def test_fresh_tickets_are_fetched_before_the_old_ones_end(web: Web, broker: Broker, cluster: FakeCluster) -> None:
    broker.impersonator.life = timedelta(seconds=90)
    live = web.open(broker.evidence())
    broker.impersonator.life = None
    cluster.scripts.append(FakeScript())
    Reader(web.runs.start_stage(live, ONE, "get_sources", b"x")).end()
    assert [one["detail"]["use"] for one in broker.records(type="tickets", phase="intent")] == ["ssh", "login"]
