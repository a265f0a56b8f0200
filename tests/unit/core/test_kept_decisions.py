"""Every decision can be explained and asked again: the question is kept, and the log has its hash."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from bench import Broker, refused
from sqlalchemy import text

from bridge.policy.cases import ALLOWED
from bridge.policy.engine import Engine
from bridge.policy.explain import Explainer
from bridge.policy.past import answer
from bridge.policy.question import Question


def record(broker: Broker, reference: str | None) -> dict[str, Any]:
    """The audit record in which the decision is told."""
    return next(one for one in broker.records(type="admission") if one["reference"] == reference)


def test_an_admission_is_kept_with_the_question_that_it_answers(broker: Broker) -> None:
    admitted = broker.admission.admit(broker.evidence())
    with broker.ledger.read() as view:
        found = view.decision(admitted.reference)
    assert found is not None
    assert (found.code, found.account, found.user_id) == (ALLOWED, "alice", 101)
    assert found.bundle_hash == admitted.grant.bundle_hash
    assert hashlib.sha256(found.question).hexdigest() == record(broker, admitted.reference)["request_sha256"]
    question = Question.from_json(found.question)
    assert question.identity == admitted.grant.identity
    assert answer(Engine(broker.policy.bundle), question).code == ALLOWED


def test_a_refusal_is_kept_explained_and_says_in_the_log_what_was_over_which_limit(broker: Broker) -> None:
    error = refused(lambda: broker.admission.admit(broker.evidence(scheduler_parameters="--nodes=99")))
    with broker.ledger.read() as view:
        found = view.decision(error.reference or "")
    assert found is not None
    assert found.code == error.code == "limits.exceeded"
    assert "99 nodes" in f"{error.title} {error.remedy}"
    explanation = Explainer(broker.policy.bundle).explain(Question.from_json(found.question))
    assert explanation.decision == error.code
    assert record(broker, error.reference)["request_sha256"] == hashlib.sha256(found.question).hexdigest()


@pytest.mark.threat("T50")
def test_who_has_no_account_learns_nothing_of_the_rules(broker: Broker) -> None:
    error = refused(lambda: broker.admission.admit(broker.evidence(301, 103, scheduler_parameters="--nodes=99")))
    assert error.code == "account.not_mapped"
    assert "node" not in f"{error.title} {error.remedy}"
    with broker.ledger.read() as view:
        assert view.decision(error.reference or "") is None


@pytest.mark.threat("T44")
def test_a_question_that_somebody_changed_does_not_fit_its_record(broker: Broker) -> None:
    admitted = broker.admission.admit(broker.evidence())
    with broker.engine.begin() as connection:
        connection.execute(text("UPDATE decisions SET question = x'7b7d'"))
    with broker.ledger.read() as view:
        found = view.decision(admitted.reference)
    assert found is not None
    assert hashlib.sha256(found.question).hexdigest() != record(broker, admitted.reference)["request_sha256"]


def test_decisions_come_newest_first_and_from_a_moment_on(broker: Broker) -> None:
    first = broker.admission.admit(broker.evidence(301))
    broker.clock.shift = timedelta(minutes=1)
    second = broker.admission.admit(broker.evidence(302, 102))
    now = broker.clock()
    with broker.ledger.read() as view:
        assert [one.reference for one in view.decisions(now - timedelta(hours=1), 9)] == [
            second.reference,
            first.reference,
        ]
        assert [one.reference for one in view.decisions(now - timedelta(seconds=30), 9)] == [second.reference]
        assert len(view.decisions(now - timedelta(hours=1), 1)) == 1
