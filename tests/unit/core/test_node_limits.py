"""A node's share: what its own jobs need and more, and not what a stolen keytab could ask for."""

from __future__ import annotations

import json

import pytest
from bench import Broker, refused
from test_ticketing import HOST, JOB, NODE, put_stage

from bridge.admission import Admitted
from bridge.api.problems import problem
from bridge.errors import Outage, TooMany
from bridge.folding import FIRST
from bridge.model import StageState
from bridge.nodeclaims import AT_ONCE, CLAIM_LIFE
from bridge.settings import Broker as Settings

BURST = 2000
OTHER = "host/node2.realm.test@REALM.TEST"


@pytest.fixture
def run(broker: Broker) -> Admitted:
    """Alice's run, with a stage that is Slurm job 4711."""
    admitted = broker.admission.admit(broker.evidence())
    put_stage(broker, admitted.run_id, StageState.RUNNING)
    return admitted


def _foreign(broker: Broker, caller: str = HOST, times: int = 1) -> list[str]:
    """Ask, as a prolog does for every job that starts, about jobs that are not the bridge's."""
    node = caller.partition("/")[2].partition("@")[0]
    return [refused(lambda: broker.tickets.claim(caller, 99, 20001, node)).code for _ in range(times)]


def test_an_array_that_starts_on_a_node_at_once_is_not_refused(broker: Broker) -> None:
    assert set(_foreign(broker, times=BURST)) == {"node.not_ours"}


@pytest.mark.threat("T37")
@pytest.mark.threat("T38")
def test_a_stolen_keytab_can_not_ask_without_end(broker: Broker, run: Admitted) -> None:
    _foreign(broker, times=BURST)
    error = refused(lambda: broker.tickets.claim(HOST, JOB, 20001, "node1"))
    assert (type(error), error.code) == (TooMany, "node.too_many")
    assert refused(lambda: broker.tickets.released(HOST, JOB, 20001, "node1")).code == "node.too_many"
    assert _foreign(broker, OTHER) == ["node.not_ours"], "another node's share was spent"

    broker.moment += 1.0
    assert broker.tickets.claim(HOST, JOB, 20001, "node1").node == NODE


@pytest.mark.threat("T38")
@pytest.mark.threat("T43")
@pytest.mark.parametrize(
    ("caller", "node", "code"),
    [
        (HOST, NODE, "node.too_many"),
        (HOST, "node2", "node.wrong_node"),
        ("alice@REALM.TEST", NODE, "node.not_a_host"),
    ],
)
def test_whoever_is_refused_over_and_over_does_not_fill_the_audit_log(
    broker: Broker, caller: str, node: str, code: str
) -> None:
    if code == "node.too_many":
        _foreign(broker, times=BURST)

    def ask() -> str | None:
        error = refused(lambda: broker.tickets.claim(caller, 99, 20001, node))
        assert error.code == code
        return error.reference

    references = [ask() for _ in range(3 * FIRST)]
    records = broker.records(type="tickets")
    assert [(one["phase"], one["code"], one["reference"]) for one in records] == [
        ("denied", code, reference) for reference in references[:FIRST]
    ]
    assert records[0]["detail"].get("principal", records[0]["detail"].get("host")) in (caller, NODE)
    # A minute without tokens for the node, so that it is refused again.
    broker.moment += 60.0
    if code == "node.too_many":
        _foreign(broker, times=BURST)
    ask()
    assert broker.records(type="tickets")[-1]["detail"]["folded"] == 2 * FIRST


@pytest.mark.threat("T37")
@pytest.mark.threat("T38")
def test_a_node_has_so_many_jobs_under_way_and_no_more(broker: Broker, run: Admitted) -> None:
    claims = [broker.tickets.claim(HOST, JOB, 20001, "node1") for _ in range(AT_ONCE)]
    assert refused(lambda: broker.tickets.claim(HOST, JOB, 20001, "node1")).code == "node.too_many"
    (denied,) = broker.records(type="tickets", phase="denied")
    assert (denied["code"], denied["slurm_job_id"]) == ("node.too_many", JOB)

    broker.tickets.for_node(claims[0].claim_id)
    broker.tickets.claim(HOST, JOB, 20001, "node1")
    broker.tickets.claims.done(claims[1].claim_id)
    broker.tickets.claim(HOST, JOB, 20001, "node1")
    broker.impersonator.error = Outage("kerberos.kdc_unreachable", "T.", "R.")
    assert refused(lambda: broker.tickets.for_node(claims[2].claim_id)).code == "kerberos.kdc_unreachable"
    broker.tickets.claim(HOST, JOB, 20001, "node1")
    assert refused(lambda: broker.tickets.claim(HOST, JOB, 20001, "node1")).code == "node.too_many"
    broker.clock.shift += CLAIM_LIFE
    assert broker.tickets.claim(HOST, JOB, 20001, "node1").node == NODE


def test_a_claim_is_counted_while_its_bundle_is_made(broker: Broker, run: Admitted) -> None:
    claims = [broker.tickets.claim(HOST, JOB, 20001, "node1") for _ in range(AT_ONCE)]
    seen: list[str] = []
    broker.impersonator.before = lambda: seen.append(
        refused(lambda: broker.tickets.claim(HOST, JOB, 20001, "node1")).code
    )
    broker.tickets.for_node(claims[0].claim_id)
    assert seen == ["node.too_many"]


def test_the_answer_is_429_and_says_when_to_come_again() -> None:
    answer = problem(TooMany("node.too_many", "T.", "R."))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
    assert json.loads(bytes(answer.body))["code"] == "node.too_many"


def test_the_defaults_are_what_these_tests_count_on() -> None:
    fields = Settings.model_fields
    assert fields["node_claims_at_once"].default == AT_ONCE
    assert (fields["node_requests_burst"].default, fields["node_requests_per_minute"].default) == (BURST, 1200)
