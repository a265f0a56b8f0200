"""Tickets after admission: for whoever holds the run's session, and for the node on which its Slurm job is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from bench import Broker, refused
from sqlalchemy import text

from bridge.admission import Admitted
from bridge.errors import BridgeError, Defect, Outage
from bridge.lifecycle import RUN_TRANSITIONS
from bridge.model import RunId, RunState, Stage, StageKind, StageState
from bridge.nodeclaims import CLAIM_LIFE, NodeClaim
from bridge.ticketing import END_GRACE, Use
from runner.binding import node_binding
from tests.fakes import FakeAcceptor

NODE = "node1.realm.test"
HOST = f"host/{NODE}@REALM.TEST"
JOB = 4711
MDS = ("lustre_mds/mds1.realm.test", "lustre_mds/mds2.realm.test")


@pytest.fixture
def run(broker: Broker) -> Admitted:
    """Alice's run, with a stage that is Slurm job 4711."""
    admitted = broker.admission.admit(broker.evidence())
    put_stage(broker, admitted.run_id, StageState.RUNNING)
    broker.impersonator.asked.clear()
    return admitted


def put_stage(broker: Broker, run_id: RunId, state: StageState, invocation: str = "a" * 32) -> None:
    """Have the ledger know the Slurm job in a state."""
    name = f"ci-{run_id}-build_script"
    stage = Stage(run_id, invocation, "build_script", StageKind.SLURM, state, JOB, name, None, None)
    with broker.ledger.begin() as tx:
        tx.add_stage(stage)


def tamper(broker: Broker, statement: str, **values: object) -> None:
    """Change the database as whoever takes web could."""
    with broker.engine.connect() as connection:
        connection.execute(text(statement), values)
        connection.commit()


@pytest.mark.parametrize(("use", "targets"), [(Use.SSH, ("host/login.realm.test",)), (Use.LOGIN, MDS)])
def test_each_use_gets_its_own_services_and_no_more(
    broker: Broker, run: Admitted, use: Use, targets: tuple[str, ...]
) -> None:
    bundle = broker.tickets.for_run(run.run_id, run.session, use)

    assert broker.impersonator.asked == [("alice", targets, run.grant.limits.ticket_minutes * 60)]
    assert [ticket.server for ticket in bundle.tickets] == [f"{target}@REALM.TEST" for target in targets]
    intent, outcome = broker.records(type="tickets")
    assert (intent["phase"], outcome["phase"]) == ("intent", "ok")
    assert intent["reference"] == outcome["reference"]
    assert outcome["detail"]["use"] == use.value
    assert outcome["tickets"]["services"] == [f"{target}@REALM.TEST" for target in targets]


def test_a_node_gets_the_services_of_nodes(broker: Broker, run: Admitted) -> None:
    claim = broker.tickets.claim(HOST, JOB, 20001, "node1")
    cache, bundle = broker.tickets.for_node(claim.claim_id)

    assert cache == "FILE:/tmp/krb5cc_20001"
    assert bundle.principal == "alice@REALM.TEST"
    assert broker.impersonator.asked == [("alice", MDS, run.grant.limits.ticket_minutes * 60)]
    intent, outcome = broker.records(type="tickets")
    assert (intent["phase"], outcome["phase"]) == ("intent", "ok")
    assert (outcome["slurm_job_id"], outcome["target"]["node"], outcome["stage"]) == (JOB, NODE, "build_script")


@pytest.mark.threat("T43")
@pytest.mark.parametrize("use", Use)
def test_the_intent_comes_first(broker: Broker, run: Admitted, use: Use) -> None:
    seen: list[str] = []
    broker.impersonator.before = lambda: seen.extend(one["phase"] for one in broker.records(type="tickets"))
    broker.tickets.for_run(run.run_id, run.session, use)
    assert seen == ["intent"]


@pytest.mark.threat("T42")
def test_no_kdc_is_asked_when_the_intent_can_not_be_recorded(broker: Broker, run: Admitted) -> None:
    tamper(broker, "DROP TABLE audit")
    assert refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH)).code.startswith("db.")
    assert broker.impersonator.asked == []


def test_a_kdc_that_refuses_is_on_record_under_the_callers_reference(broker: Broker, run: Admitted) -> None:
    broker.impersonator.error = Outage("kerberos.kdc_unreachable", "T.", "R.")
    error = refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH))
    (failed,) = broker.records(type="tickets", phase="failed")
    assert (failed["code"], failed["reference"]) == ("kerberos.kdc_unreachable", error.reference)


@pytest.mark.threat("T50")
def test_a_wrong_session_and_a_run_that_never_was_get_one_answer(broker: Broker, run: Admitted) -> None:
    wrong = refused(lambda: broker.tickets.for_run(run.run_id, run.session + "x", Use.SSH))
    never = refused(lambda: broker.tickets.for_run(RunId("z" * 26), run.session, Use.SSH))
    assert wrong.code == "session.invalid"
    assert (wrong.code, wrong.title, wrong.remedy, type(wrong)) == (never.code, never.title, never.remedy, type(never))
    assert broker.impersonator.asked == []


@pytest.mark.threat("T50")
def test_the_session_of_another_run_opens_nothing(broker: Broker, run: Admitted) -> None:
    other = broker.admission.admit(broker.evidence(job_id=302, user_id=102))
    assert refused(lambda: broker.tickets.for_run(run.run_id, other.session, Use.SSH)).code == "session.invalid"


def test_an_ended_run_gets_no_tickets(broker: Broker, run: Admitted) -> None:
    with broker.ledger.begin() as tx:
        tx.update_run_state(run.run_id, RUN_TRANSITIONS.keys(), RunState.ENDED)
    for ask in (
        lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH),
        lambda: broker.tickets.claim(HOST, JOB, 20001, "node1"),
    ):
        assert refused(ask).code == "run.ended"
    assert broker.impersonator.asked == []


@pytest.mark.threat("T23")
def test_after_the_jobs_time_out_only_the_way_to_clean_up_is_open(broker: Broker, run: Admitted) -> None:
    broker.clock.shift = timedelta(hours=1, seconds=1)
    assert refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.LOGIN)).code == "run.over_time"
    assert refused(lambda: broker.tickets.claim(HOST, JOB, 20001, "node1")).code == "run.over_time"
    assert broker.tickets.for_run(run.run_id, run.session, Use.SSH).tickets

    broker.clock.shift = timedelta(hours=1) + END_GRACE
    assert refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH)).code == "run.over_time"


def _as_bob(grant: dict[str, object]) -> None:
    account = grant["account"]
    assert isinstance(account, dict)
    account["name"], account["uid"] = "bob", 20002


def _longer(grant: dict[str, object]) -> None:
    limits = grant["limits"]
    assert isinstance(limits, dict)
    limits["ticket_minutes"] = 10_000


def _elsewhere(grant: dict[str, object]) -> None:
    cluster = grant["cluster"]
    assert isinstance(cluster, dict)
    cluster["login_host"] = "evil.realm.test"


@pytest.mark.threat("T21")
@pytest.mark.parametrize("change", [_as_bob, _longer, _elsewhere])
@pytest.mark.parametrize("ask", ["for_run", "claim", "for_node"])
def test_a_grant_that_was_changed_in_the_database_is_found_and_on_record(
    broker: Broker, run: Admitted, change: Callable[[dict[str, object]], None], ask: str
) -> None:
    claim = broker.tickets.claim(HOST, JOB, 20001, "node1")
    with broker.ledger.read() as view:
        grant = json.loads(view.sealed_grant(run.run_id).grant_json)
    change(grant)
    forged = json.dumps(grant, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    tamper(broker, "UPDATE runs SET grant_json = :forged", forged=forged)
    asks: dict[str, Callable[[], object]] = {
        "for_run": lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH),
        "claim": lambda: broker.tickets.claim(HOST, JOB, grant["account"]["uid"], "node1"),
        "for_node": lambda: broker.tickets.for_node(claim.claim_id),
    }
    error = refused(asks[ask])

    assert isinstance(error, Defect)
    assert error.code == "seal.broken"
    assert broker.impersonator.asked == []
    (record,) = broker.records(type="tickets")
    assert (record["phase"], record["code"], record["reference"]) == ("denied", "seal.broken", error.reference)
    assert record["run_id"] == run.run_id


ANOTHERS = """UPDATE runs SET seal = other.seal, grant_json = other.grant_json
FROM (SELECT seal, grant_json FROM runs WHERE job_id = 302) AS other WHERE job_id = 301"""


@pytest.mark.threat("T21")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET not_after = not_after + 3600000000",
        "UPDATE runs SET attempt = attempt + 1",
        "UPDATE runs SET seal = x'00'",
        ANOTHERS,
    ],
    ids=["longer", "attempt", "no seal", "another run's grant and seal"],
)
def test_a_row_that_was_changed_in_the_database_gets_no_tickets(broker: Broker, run: Admitted, statement: str) -> None:
    broker.admission.admit(broker.evidence(job_id=302, user_id=102))
    broker.impersonator.asked.clear()
    tamper(broker, statement)
    assert refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.SSH)).code == "seal.broken"
    assert broker.impersonator.asked == []


CLAIMS: dict[str, tuple[tuple[str, int, int, str], str, bool]] = {
    "a person": (("alice@REALM.TEST", JOB, 20001, "node1"), "node.not_a_host", True),
    "a web server": ((f"HTTP/{NODE}@REALM.TEST", JOB, 20001, "node1"), "node.not_a_host", True),
    "a person named host": (("host@REALM.TEST", JOB, 20001, "node1"), "node.not_a_host", True),
    "upper case": ((f"HOST/{NODE}@REALM.TEST", JOB, 20001, "node1"), "node.not_a_host", True),
    "a node that is not listed": (("host/node9.realm.test@REALM.TEST", JOB, 20001, "node9"), "node.not_ours", False),
    "the login node": (("host/login.realm.test@REALM.TEST", JOB, 20001, "login"), "node.not_ours", False),
    "another realm": ((f"host/{NODE}@EVIL.TEST", JOB, 20001, "node1"), "node.not_ours", False),
    "three components": ((f"host/{NODE}/x@REALM.TEST", JOB, 20001, "node1"), "node.not_a_host", True),
    "in another node's name": ((HOST, JOB, 20001, "node2"), "node.wrong_node", True),
    "in a longer name": ((HOST, JOB, 20001, NODE + ".evil.test"), "node.wrong_node", True),
    "for another uid": ((HOST, JOB, 20002, "node1"), "node.not_ours", False),
    "for uid 0": ((HOST, JOB, 0, "node1"), "node.not_ours", False),
    "a job that is not ours": ((HOST, JOB + 1, 20001, "node1"), "node.not_ours", False),
    "no Kerberos": (("nobody", JOB, 20001, "node1"), "negotiate.refused", False),
}


@pytest.mark.threat("T23")
@pytest.mark.threat("T37")
@pytest.mark.parametrize(("arguments", "code", "recorded"), CLAIMS.values(), ids=CLAIMS.keys())
def test_nobody_claims_the_tickets_of_a_job_but_its_own_node(
    broker: Broker, run: Admitted, arguments: tuple[str, int, int, str], code: str, recorded: bool
) -> None:
    error = refused(lambda: broker.tickets.claim(*arguments))

    assert error.code == code
    assert broker.impersonator.asked == []
    assert [(one["phase"], one["code"], one["reference"]) for one in broker.records(type="tickets")] == (
        [("denied", code, error.reference)] if recorded else []
    )


@pytest.mark.threat("T37")
@pytest.mark.parametrize("state", [StageState.INTENDED, StageState.ENDED, StageState.CANCELLED, StageState.LOST])
def test_a_job_that_is_not_on_slurm_has_no_tickets(broker: Broker, state: StageState) -> None:
    admitted = broker.admission.admit(broker.evidence())
    put_stage(broker, admitted.run_id, state)
    assert refused(lambda: broker.tickets.claim(HOST, JOB, 20001, "node1")).code == "node.not_ours"


@pytest.mark.parametrize("node", ["node1", NODE])
def test_a_node_may_give_its_short_or_its_long_name(broker: Broker, run: Admitted, node: str) -> None:
    assert broker.tickets.claim(HOST, JOB, 20001, node).node == NODE


@pytest.mark.threat("T37")
def test_a_claim_is_good_once(broker: Broker, run: Admitted) -> None:
    claim = broker.tickets.claim(HOST, JOB, 20001, "node1")
    broker.tickets.for_node(claim.claim_id)
    assert refused(lambda: broker.tickets.for_node(claim.claim_id)).code == "node.claim_unknown"
    assert refused(lambda: broker.tickets.for_node("guess")).code == "node.claim_unknown"
    assert len(broker.impersonator.asked) == 1


@pytest.mark.threat("T37")
def test_a_claim_expires(broker: Broker, run: Admitted) -> None:
    claim = broker.tickets.claim(HOST, JOB, 20001, "node1")
    broker.clock.shift += CLAIM_LIFE
    assert refused(lambda: broker.tickets.for_node(claim.claim_id)).code == "node.claim_unknown"


def test_claims_that_are_never_taken_do_not_pile_up(broker: Broker, run: Admitted) -> None:
    claims: list[NodeClaim] = []
    for _ in range(5):
        broker.clock.shift += CLAIM_LIFE
        claims.append(broker.tickets.claim(HOST, JOB, 20001, "node1"))
    assert list(broker.claims._open) == [claims[-1].claim_id]


def test_a_claim_of_a_run_that_ended_meanwhile_gives_nothing(broker: Broker, run: Admitted) -> None:
    claim = broker.tickets.claim(HOST, JOB, 20001, "node1")
    with broker.ledger.begin() as tx:
        tx.update_run_state(run.run_id, RUN_TRANSITIONS.keys(), RunState.ENDED)
    assert refused(lambda: broker.tickets.for_node(claim.claim_id)).code == "run.ended"


@pytest.fixture
def delivered(broker: Broker, run: Admitted) -> Admitted:
    """The same run, with its tickets on node1."""
    broker.tickets.for_node(broker.tickets.claim(HOST, JOB, 20001, "node1").claim_id)
    return run


@pytest.mark.threat("T23")
def test_the_removal_of_tickets_is_on_record_even_after_the_end(broker: Broker, delivered: Admitted) -> None:
    with broker.ledger.begin() as tx:
        tx.update_run_state(delivered.run_id, RUN_TRANSITIONS.keys(), RunState.ENDED)
    assert broker.tickets.released(HOST, JOB, 20001, "node1")
    (event,) = broker.records(type="tickets", phase="event")
    assert (event["slurm_job_id"], event["target"]["node"]) == (JOB, NODE)
    assert event["detail"] == {"use": "node", "removed": True}


def test_a_removal_is_recorded_once_for_each_delivery(broker: Broker, delivered: Admitted) -> None:
    for _ in range(3):
        assert broker.tickets.released(HOST, JOB, 20001, "node1")
    assert len(broker.records(type="tickets", phase="event")) == 1
    broker.tickets.for_node(broker.tickets.claim(HOST, JOB, 20001, "node1").claim_id)
    assert broker.tickets.released(HOST, JOB, 20001, "node1")
    assert len(broker.records(type="tickets", phase="event")) == 2


@pytest.mark.parametrize(("principal", "uid", "node"), [(HOST, 20002, "node1"), (HOST, 20001, "node2")])
def test_a_removal_in_another_name_is_not_recorded(
    broker: Broker, delivered: Admitted, principal: str, uid: int, node: str
) -> None:
    error: BridgeError = refused(lambda: broker.tickets.released(principal, JOB, uid, node))
    assert error.code == "node.not_ours"
    assert broker.records(type="tickets", phase="event") == []


@pytest.mark.threat("T37")
def test_a_node_that_was_given_no_tickets_has_none_to_remove(broker: Broker, delivered: Admitted) -> None:
    node2 = "host/node2.realm.test@REALM.TEST"
    assert refused(lambda: broker.tickets.released(node2, JOB, 20001, "node2")).code == "node.not_ours"
    broker.impersonator.error = Outage("kerberos.kdc_unreachable", "T.", "R.")
    claim = broker.tickets.claim(node2, JOB, 20001, "node2")
    refused(lambda: broker.tickets.for_node(claim.claim_id))
    assert refused(lambda: broker.tickets.released(node2, JOB, 20001, "node2")).code == "node.not_ours"
    assert broker.records(type="tickets", phase="event") == []


@pytest.mark.threat("T37")
def test_a_nodes_token_is_taken_for_what_is_asked_and_for_nothing_else(broker: Broker, delivered: Admitted) -> None:
    acceptor = broker.tickets.acceptor
    assert isinstance(acceptor, FakeAcceptor)
    broker.tickets.released(HOST, JOB, 20001, "node1")
    assert acceptor.bindings == [
        node_binding("tickets", JOB, 20001, "node1"),
        node_binding("released", JOB, 20001, "node1"),
    ]


def test_no_two_requests_have_one_binding() -> None:
    asked = [
        ("tickets", 1, 2, "n"),
        ("released", 1, 2, "n"),
        ("tickets", 12, 2, "n"),
        ("tickets", 1, 22, "n"),
        ("tickets", 1, 2, "n2"),
        ("tickets", 1, 2, '2,"n'),
    ]
    assert len({node_binding(*one) for one in asked}) == len(asked)
