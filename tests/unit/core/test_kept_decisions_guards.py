"""Guards around kept decisions: one question for each reference, and a refusal that says why in the job's own log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import Broker, refused
from test_cli import failed, run


def test_of_two_questions_under_one_reference_the_newer_is_told(broker: Broker) -> None:
    reference = broker.admission.admit(broker.evidence()).reference
    with broker.ledger.read() as view:
        first = view.decision(reference)
    assert first is not None
    with broker.ledger.begin() as tx:
        tx.keep_decision(replace(first, code="limits.exceeded"))
    with broker.ledger.read() as view:
        assert view.decision(reference) == replace(first, code="limits.exceeded")


def test_a_refusal_by_two_rules_names_both_in_the_jobs_log(broker: Broker) -> None:
    claims = {"job_project_id": "8", "pipeline_source": "weird"}
    error = refused(lambda: broker.admission.admit(broker.evidence(claims=claims)))
    assert error.code == "policy.forbidden"
    for rule in ("pipelines of forks do not run", "only pipelines that a person started"):
        assert rule in f"{error.title} {error.remedy}"


@pytest.mark.threat("T39")
@pytest.mark.parametrize("reference", ["../me", "7F3K-9QXM-2DTB/../../me", "", "7f3k-9qxm-2dtb", "7F3K-9QXM-2DTB?x=1"])
def test_no_reference_leads_to_another_address(monkeypatch: pytest.MonkeyPatch, reference: str) -> None:
    monkeypatch.setattr("bridge.cli.why.load_client", lambda server: None)
    monkeypatch.setattr("bridge.cli.why.connect", lambda settings: Silent())
    failed(run("policy", "why", reference), "remote.no_id")


class Silent:
    """A bridge that must not be asked."""

    def get(self, path: str) -> object:
        """See Remote."""
        raise AssertionError(path)
