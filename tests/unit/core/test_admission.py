"""Admission: nothing is asked of the KDC before the intent is durable, and every refusal leaves one record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from bench import Broker, refused

from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import Outage, PolicyRefused, Refused, TokenRefused
from bridge.lifecycle import RunState


def test_an_admitted_job_has_a_run_tickets_and_two_records(broker: Broker) -> None:
    admitted = broker.admission.admit(broker.evidence())

    assert admitted.grant.account.name == "alice"
    assert admitted.bundle.principal == "alice@REALM.TEST"
    life = admitted.grant.limits.ticket_minutes * 60
    assert broker.impersonator.asked == [("alice", ("host/login.realm.test",), life)]
    intent, outcome = broker.records()
    assert (intent["phase"], outcome["phase"]) == ("intent", "ok")
    assert intent["reference"] == outcome["reference"] == admitted.reference
    assert intent["run_id"] == outcome["run_id"] == admitted.run_id
    assert "tickets" not in intent
    assert outcome["tickets"]["services"] == ["host/login.realm.test@REALM.TEST"]


@pytest.mark.threat("T43")
def test_the_intent_is_durable_before_the_kdc_is_asked(broker: Broker, database: str) -> None:
    seen: list[list[str]] = []

    def look() -> None:
        other = open_database(database)
        with SqlLedger(other, Writer.new("other process")).read() as view:
            seen.append([entry.index.phase for entry in view.entries()])
        other.dispose()

    broker.impersonator.before = look
    broker.admission.admit(broker.evidence())

    assert seen == [["intent"]]


@pytest.mark.threat("T42")
@pytest.mark.threat("T43")
@pytest.mark.parametrize("damage", ["DROP TABLE audit", "DROP TABLE audit_head", "DROP TABLE runs"])
def test_no_kdc_is_asked_when_the_ledger_fails(broker: Broker, damage: str) -> None:
    with broker.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql(damage)
        connection.commit()

    with pytest.raises(Outage, match=r"^db\."):
        broker.admission.admit(broker.evidence())
    assert broker.impersonator.asked == []


@pytest.mark.threat("T43")
def test_no_tickets_leave_when_the_outcome_can_not_be_recorded(broker: Broker) -> None:
    def lose_the_log() -> None:
        with broker.engine.connect() as connection:
            connection.exec_driver_sql("ALTER TABLE audit RENAME TO gone")
            connection.commit()

    broker.impersonator.before = lose_the_log
    with pytest.raises(Outage, match=r"^db\."):
        broker.admission.admit(broker.evidence())


@pytest.mark.threat("T42")
def test_a_refusal_that_can_not_be_recorded_is_an_outage(broker: Broker) -> None:
    with broker.engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE audit")
        connection.commit()
    with pytest.raises(Outage, match=r"^db\."):
        broker.admission.admit(broker.evidence(user_id=103))


Spoil = Callable[[Broker], dict[str, object]]

REFUSALS: dict[str, tuple[Spoil, str, str]] = {
    "no token": (lambda b: {"id_token": "x.y.z"}, "token.", "denied"),
    "stale token": (lambda b: {"claims": {"iat": 1, "nbf": 1, "exp": 3600}}, "token.", "denied"),
    "other audience": (lambda b: {"claims": {"aud": "https://vault.test"}}, "token.audience", "denied"),
    "dead job": (
        lambda b: setattr(b.jobs, "error", TokenRefused("job.not_running", "T.", "R.")) or {},
        "job.",
        "denied",
    ),
    "GitLab away": (
        lambda b: setattr(b.jobs, "error", Outage("gitlab.unreachable", "T.", "R.")) or {},
        "gitlab.unreachable",
        "failed",
    ),
    "no mapping": (lambda b: {"user_id": 103}, "account.not_mapped", "denied"),
    "mapped to root": (lambda b: {"user_id": 105}, "account.", "denied"),
    "directory away": (
        lambda b: setattr(b.directory, "error", Outage("directory.unreachable", "T.", "R.", account="alice")) or {},
        "directory.unreachable",
        "failed",
    ),
    "no such account": (lambda b: b.directory.accounts.clear() or {}, "account.unknown", "denied"),
    "unknown cluster": (lambda b: {"cluster": "moon"}, "cluster.unknown", "denied"),
    "forbidden": (lambda b: {"claims": {"pipeline_source": "trigger"}}, "policy.forbidden", "denied"),
    "too much": (lambda b: {"scheduler_parameters": "--nodes=3"}, "limits.", "denied"),
    "option": (lambda b: {"scheduler_parameters": "--uid=0"}, "slurm.option_refused", "denied"),
}


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("spoil", "code", "phase"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_leaves_one_record_under_the_callers_reference(
    broker: Broker, spoil: Spoil, code: str, phase: str
) -> None:
    changes = spoil(broker)
    error = refused(lambda: broker.admission.admit(broker.evidence(**changes)))

    assert error.code.startswith(code)
    (record,) = broker.records()
    assert (record["type"], record["phase"], record["code"]) == ("admission", phase, error.code)
    assert record["reference"] == error.reference
    assert "run_id" not in record
    assert broker.impersonator.asked == []


def test_a_refused_token_is_not_used_up(broker: Broker) -> None:
    evidence = broker.evidence()
    broker.jobs.error = Outage("gitlab.unreachable", "T.", "R.")
    refused(lambda: broker.admission.admit(evidence))
    broker.jobs.error = None

    assert broker.admission.admit(evidence).attempt == 1


@pytest.mark.parametrize(
    "error", [PolicyRefused("kerberos.locked", "T.", "R."), Outage("kerberos.kdc_unreachable", "T.", "R.")]
)
def test_a_kdc_that_refuses_ends_the_run_and_is_on_record(broker: Broker, error: PolicyRefused | Outage) -> None:
    broker.impersonator.error = error
    raised = refused(lambda: broker.admission.admit(broker.evidence()))

    intent, failed = broker.records()
    assert (intent["phase"], failed["phase"], failed["code"]) == ("intent", "failed", error.code)
    assert raised.reference == intent["reference"] == failed["reference"]
    with broker.ledger.read() as view:
        assert view.run(intent["run_id"]).state is RunState.ENDED
        assert view.live_runs() == []


def test_the_runners_retry_after_an_outage_is_the_same_run_again(broker: Broker) -> None:
    evidence = broker.evidence()
    broker.impersonator.error = Outage("kerberos.kdc_unreachable", "T.", "R.")
    refused(lambda: broker.admission.admit(evidence))
    broker.impersonator.error = None
    admitted = broker.admission.admit(evidence)

    assert admitted.attempt == 2
    assert {record["run_id"] for record in broker.records()} == {admitted.run_id}


@pytest.mark.threat("T7")
@pytest.mark.parametrize(
    "changes", [{"job_token": "glcbt-stolen"}, {"claims": {"jti": "another-jti"}}], ids=["job token", "jti"]
)
def test_a_replay_is_refused_and_on_record(broker: Broker, changes: dict[str, object]) -> None:
    admitted = broker.admission.admit(broker.evidence())
    error = refused(lambda: broker.admission.admit(broker.evidence(**changes)))

    assert isinstance(error, Refused)
    assert error.code == "token.replayed"
    (denial,) = broker.records(phase="denied")
    assert (denial["code"], denial["reference"]) == ("token.replayed", error.reference)
    assert len(broker.impersonator.asked) == 1
    with broker.ledger.read() as view:
        assert view.run(admitted.run_id).attempt == 1


@pytest.mark.threat("T46")
def test_no_secret_is_in_the_database(broker: Broker, tmp_path: Path) -> None:
    evidence = broker.evidence()
    admitted = broker.admission.admit(evidence)
    refused(lambda: broker.admission.admit(broker.evidence(job_token="glcbt-stolen")))
    broker.engine.dispose()

    everything = b"".join(path.read_bytes() for path in tmp_path.glob("bridge.sqlite3*"))
    for secret in (evidence.id_token, evidence.job_token, "glcbt-stolen", admitted.session):
        assert secret.encode() not in everything
    assert admitted.bundle.ccache not in everything
    assert evidence.id_token not in repr(evidence)
    assert admitted.session not in repr(admitted)


def test_the_run_ends_with_the_token(broker: Broker) -> None:
    admitted = broker.admission.admit(broker.evidence())
    with broker.ledger.read() as view:
        left = view.run(admitted.run_id).not_after - broker.clock()
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
