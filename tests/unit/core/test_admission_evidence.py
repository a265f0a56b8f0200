"""What a job shows decides: the level of evidence is in the identity, in the decision and on record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bench import ISSUER, POLICIES, Broker, refused

from bridge.admission import SHOWN_CLAIMS
from bridge.errors import PolicyRefused, TokenRefused
from bridge.model import Evidence, EvidenceLevel

LONGEST = 1800


def texts_of(directory: Path) -> dict[str, str]:
    """The files of a bundle."""
    return {
        path.relative_to(directory).as_posix(): path.read_text()
        for path in directory.rglob("*")
        if path.suffix in {".toml", ".cedar", ".cedarschema"}
    }


def by_job_token(broker: Broker, job_id: int = 301, **changes: Any) -> Evidence:
    """What a runner shows of a job that has no id_token."""
    shown = broker.evidence(job_id, **changes)
    facts = replace(shown.facts, server_url=ISSUER)
    return Evidence(None, shown.job_token, facts, shown.scheduler_parameters, shown.cluster)


@pytest.fixture
def open_broker(broker: Broker) -> Broker:
    """A bridge whose settings and policy take a job token for enough."""
    texts = {name: text for name, text in texts_of(POLICIES).items() if not name.startswith("cases/")}
    guards = texts["guards.cedar"].replace('context.evidence == "id_token"', "context.job_project_id == 7")
    own = 'context has runner_environment && context.runner_environment == "self-hosted"'
    guards = guards.replace(own, f'context.evidence == "job_token" || ({own})')
    broker.use_texts(texts | {"guards.cedar": guards})
    object.__setattr__(broker.admission, "job_token_issuers", {ISSUER: LONGEST})
    return broker


def test_a_job_token_alone_is_refused_by_default_and_the_remedy_says_what_to_add(broker: Broker) -> None:
    error = refused(lambda: broker.admission.admit(by_job_token(broker)))

    assert (error.code, type(error)) == ("token.missing", TokenRefused)
    assert "id_tokens:" in error.remedy
    assert broker.jobs.asked == broker.impersonator.asked == []
    (record,) = broker.records()
    assert (record["phase"], record["code"], record["detail"]["evidence"]) == ("denied", "token.missing", "job_token")


def test_the_shipped_policy_refuses_what_settings_let_through(broker: Broker) -> None:
    object.__setattr__(broker.admission, "job_token_issuers", {ISSUER: LONGEST})
    error = refused(lambda: broker.admission.admit(by_job_token(broker)))

    assert (error.code, type(error)) == ("policy.forbidden", PolicyRefused)
    assert "id-token-required" in error.title
    assert "id_tokens:" in error.remedy
    (record,) = broker.records()
    assert (record["code"], record["detail"]["evidence"], record["actor"]["jti"]) == (
        "policy.forbidden",
        "job_token",
        "job:301",
    )
    assert broker.impersonator.asked == []


def test_where_both_allow_it_the_level_is_everywhere(open_broker: Broker) -> None:
    admitted = open_broker.admission.admit(by_job_token(open_broker))

    assert admitted.grant.identity.evidence is EvidenceLevel.INTROSPECTED
    assert "shown by job_token" in admitted.grant.reason
    assert admitted.grant.policy_ids == ("people-on-other-refs",)
    assert [record["detail"]["evidence"] for record in open_broker.records()] == ["job_token", "job_token"]
    with open_broker.ledger.read() as view:
        run = view.run(admitted.run_id)
    assert run.grant == admitted.grant
    assert timedelta(0) < run.not_after - open_broker.clock() <= timedelta(seconds=LONGEST)


def test_an_id_tokens_level_is_on_record_too(broker: Broker) -> None:
    admitted = broker.admission.admit(broker.evidence())
    refused(lambda: broker.admission.admit(broker.evidence(job_id=302, user_id=103)))

    assert "shown by id_token" in admitted.grant.reason
    assert [record["detail"]["evidence"] for record in broker.records()] == ["id_token"] * 3


Show = Callable[[Broker], Evidence]


@pytest.mark.threat("T7")
@pytest.mark.parametrize(
    ("first", "then"), [(Broker.evidence, by_job_token), (by_job_token, Broker.evidence)], ids=["down", "up"]
)
@pytest.mark.parametrize("later", [timedelta(0), timedelta(hours=9)], ids=["at once", "when tokens are forgotten"])
def test_a_job_is_admitted_by_one_level_only(open_broker: Broker, first: Show, then: Show, later: timedelta) -> None:
    open_broker.admission.admit(first(open_broker))
    open_broker.clock.shift += later
    if later:
        with open_broker.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM token_uses")

    assert refused(lambda: open_broker.admission.admit(then(open_broker))).code == "token.replayed"
    assert len(open_broker.impersonator.asked) == 1


@pytest.mark.threat("T7")
def test_the_runners_retry_with_the_same_job_token_is_the_same_run(open_broker: Broker) -> None:
    shown = by_job_token(open_broker)
    attempts = [open_broker.admission.admit(shown).attempt for _ in range(2)]
    assert attempts == [1, 2]
    error = refused(lambda: open_broker.admission.admit(by_job_token(open_broker, job_token="glcbt-another")))
    assert error.code == "token.replayed"


@pytest.mark.threat("T12")
def test_a_merge_request_needs_an_id_token_whatever_policy_says(open_broker: Broker) -> None:
    open_broker.jobs.says = {"source": "merge_request_event"}
    assert refused(lambda: open_broker.admission.admit(by_job_token(open_broker))).code == "job.unproven"


@pytest.mark.threat("T15")
def test_claims_that_nobody_knows_are_counted_on_record_and_refuse_nothing(broker: Broker) -> None:
    new = {f"new_claim_{number:02}": "canary-value" for number in range(20)}
    broker.admission.admit(broker.evidence(claims=new))

    intent, outcome = broker.records()
    assert intent["detail"]["unknown_claim_count"] == 20
    assert intent["detail"]["unknown_claims"] == sorted(new)[:SHOWN_CLAIMS]
    assert "unknown_claims" not in outcome["detail"]
    assert "canary-value" not in json.dumps(intent)


@pytest.mark.threat("T15")
@pytest.mark.parametrize("name", ["x" * 4000, "a b", "\u202e", "\U0010ffff" * 200, '"\\' * 500, "\n[error] forged"])
def test_a_claims_name_of_any_form_fits_on_record(broker: Broker, name: str) -> None:
    broker.admission.admit(broker.evidence(claims={name: 1}))
    assert broker.records()[0]["detail"]["unknown_claims"] == ["?"]


def test_ordinary_tokens_leave_nothing_unknown(broker: Broker) -> None:
    broker.admission.admit(broker.evidence())
    assert all("unknown_claims" not in record["detail"] for record in broker.records())


PINNED = """
@id("own-config-and-runner")
@reason("the job's configuration or runner is not this project's own.")
forbid (principal, action == Action::"run_as", resource)
unless {
  context has ci_config_ref_uri &&
  context.ci_config_ref_uri == "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/main" &&
  context has ci_config_sha && context.ci_config_sha == "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" &&
  context.runner_id == 1
};
"""
OWN = {
    "ci_config_ref_uri": "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/main",
    "ci_config_sha": "a" * 40,
}


@pytest.mark.threat("T13")
@pytest.mark.parametrize(
    "claims",
    [
        OWN | {"ci_config_ref_uri": "gitlab.realm.test/evil/templates//.gitlab-ci.yml@refs/heads/main"},
        OWN | {"ci_config_ref_uri": "gitlab.realm.test/chem/water//other.yml@refs/heads/main"},
        OWN | {"ci_config_ref_uri": "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/try"},
        OWN | {"ci_config_ref_uri": "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/main "},
        OWN | {"ci_config_sha": "b" * 40},
        {"ci_config_sha": "a" * 40},
        {"ci_config_ref_uri": OWN["ci_config_ref_uri"]},
        # GitLab's word for a configuration that is not in the project, e.g. at a remote address.
        {"ci_config_ref_uri": None, "ci_config_sha": None},
        OWN | {"runner_id": 2},
    ],
    ids=map(str, range(9)),
)
def test_a_pinned_project_runs_no_other_configuration_and_on_no_other_runner(
    broker: Broker, claims: dict[str, Any]
) -> None:
    texts = dict(broker.policy.bundle.files)
    broker.use_texts(
        {name: text for name, text in texts.items() if name != "cases/people.toml"} | {"pin.cedar": PINNED}
    )
    assert broker.admission.admit(broker.evidence(claims=OWN)).grant.account.name == "alice"
    error = refused(lambda: broker.admission.admit(broker.evidence(302, claims=claims)))
    assert (error.code, error.context["policy_ids"]) == ("policy.forbidden", ("own-config-and-runner",))
    assert len(broker.impersonator.asked) == 1
