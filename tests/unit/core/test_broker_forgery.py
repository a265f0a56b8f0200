"""Web was taken over, and asks the broker for tickets that are not its to have (T21): over the real socket."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from bench import Broker, refused
from cryptography.hazmat.primitives.asymmetric import rsa

from bridge import errors
from bridge.audit.record import Phase, RecordType
from bridge.broker.client import BrokerClient
from bridge.model import UnverifiedToken


def evidence(broker: Broker, job_id: int = 301, **changes: Any) -> dict[str, Any]:
    """What web passes on for a job of alice's, with some of it changed."""
    return asdict(broker.evidence(job_id, **changes))


def admit(broker: Broker, client: BrokerClient, job_id: int = 301) -> dict[str, Any]:
    """An honest admission; the header of the reply."""
    return client.ask("admit", evidence=evidence(broker, job_id))[0]


@pytest.fixture
def strange_key() -> rsa.RSAPrivateKey:
    """A key that is not the issuer's."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _without_token(broker: Broker) -> dict[str, Any]:
    return evidence(broker) | {"id_token": None}


def _no_token_text(broker: Broker) -> dict[str, Any]:
    return evidence(broker) | {"id_token": ""}


def _claims_without_signature(broker: Broker) -> dict[str, Any]:
    genuine = evidence(broker)
    return genuine | {"id_token": genuine["id_token"].rpartition(".")[0] + "."}


def _root_by_claim(broker: Broker) -> dict[str, Any]:
    return evidence(broker, claims={"user_id": "0", "user_login": "root"})


FORGED = [
    _without_token, _no_token_text, _claims_without_signature, _root_by_claim,
]  # fmt: skip


@pytest.mark.threat("T21")
@pytest.mark.parametrize("forge", FORGED, ids=[forge.__name__[1:] for forge in FORGED])
def test_forged_evidence_gets_no_tickets_and_is_on_record(broker: Broker, client: BrokerClient, forge: Any) -> None:
    error = refused(lambda: client.ask("admit", evidence=forge(broker)))

    assert isinstance(error, errors.TokenRefused | errors.PolicyRefused)
    assert broker.impersonator.asked == []
    (record,) = broker.records(phase=Phase.DENIED.value)
    assert record["reference"] == error.reference


FACTS = [{"user_id": 102}, {"project_path": "bio/cells"}, {"job_name": "root"}]


@pytest.mark.threat("T21")
@pytest.mark.parametrize("facts", FACTS, ids=[next(iter(one)) for one in FACTS])
def test_what_web_says_of_a_job_chooses_no_account(broker: Broker, client: BrokerClient, facts: dict[str, Any]) -> None:
    """That the facts agree with the token is for GitLab's check, which believes everything here."""
    genuine = evidence(broker)
    client.ask("admit", evidence=genuine | {"facts": genuine["facts"] | facts})
    assert [account for account, *_ in broker.impersonator.asked] == ["alice"]


@pytest.mark.threat("T21")
def test_a_token_that_web_signed_itself_gets_no_tickets(
    broker: Broker, client: BrokerClient, strange_key: rsa.RSAPrivateKey
) -> None:
    genuine, broker.key = broker.key, strange_key
    forged = evidence(broker)
    broker.key = genuine

    assert isinstance(refused(lambda: client.ask("admit", evidence=forged)), errors.TokenRefused)
    assert broker.impersonator.asked == []


@pytest.mark.threat("T21")
def test_a_replayed_token_gets_no_second_run(broker: Broker, client: BrokerClient) -> None:
    shown = evidence(broker)
    client.ask("admit", evidence=shown)
    asked = list(broker.impersonator.asked)
    other = shown | {"job_token": "glcbt-another", "scheduler_parameters": "--nodes=2"}

    assert isinstance(refused(lambda: client.ask("admit", evidence=other)), errors.TokenRefused)
    assert broker.impersonator.asked == asked
    assert len(broker.records(type=RecordType.ADMISSION.value, phase=Phase.DENIED.value)) == 1


ADDITIONS: list[dict[str, Any]] = [
    {"account": "bob"},
    {"targets": ["krbtgt/REALM.TEST"]},
    {"grant": {"account": {"name": "root", "uid": 0}}},
    {"seconds": 10**9},
    {"peer": {"uid": 0}},
    {"admitted": True},
]


@pytest.mark.threat("T21")
@pytest.mark.parametrize("addition", ADDITIONS, ids=[next(iter(one)) for one in ADDITIONS])
def test_what_web_adds_to_a_request_changes_nothing(
    broker: Broker, client: BrokerClient, addition: dict[str, Any]
) -> None:
    header = client.ask("admit", evidence=evidence(broker), **addition)[0]
    client.ask("tickets", run_id=header["run_id"], session=header["session"], use="ssh", **addition)

    plain, more = broker.impersonator.asked
    assert {account for account, *_ in (plain, more)} == {"alice"}
    assert not any("krbtgt" in str(asked) for asked in (plain, more))


NOT_THE_SESSION = ["", "x", "0" * 43, None, 5, ["x"], {"session": "x"}]


@pytest.mark.threat("T21")
@pytest.mark.parametrize("session", NOT_THE_SESSION, ids=repr)
def test_no_tickets_of_a_run_without_its_session(broker: Broker, client: BrokerClient, session: object) -> None:
    run_id = admit(broker, client)["run_id"]
    asked = list(broker.impersonator.asked)

    error = refused(lambda: client.ask("tickets", run_id=run_id, session=session, use="ssh"))
    assert error.code in ("session.invalid", "broker.malformed")
    assert broker.impersonator.asked == asked


@pytest.mark.threat("T21")
def test_no_tickets_of_one_run_by_the_session_of_another(broker: Broker, client: BrokerClient) -> None:
    mine, other = admit(broker, client, 301), admit(broker, client, 302)
    asked = list(broker.impersonator.asked)

    error = refused(lambda: client.ask("tickets", run_id=other["run_id"], session=mine["session"], use="login"))
    assert error.code == "session.invalid"
    assert broker.impersonator.asked == asked


NODE_REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no proof of being a node": ("node_claim", {"token": "", "slurm_job_id": 1, "uid": 20001, "node": "node1"}),
    "a proof of web's own making": ("node_claim", {"token": "AAAA", "slurm_job_id": 1, "uid": 20001, "node": "node1"}),
    "a claim that never was": ("node_tickets", {"claim_id": "0" * 22}),
    "a run's id for a claim": ("node_tickets", {"claim_id": "run"}),
}


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("op", "fields"), NODE_REQUESTS.values(), ids=NODE_REQUESTS.keys())
def test_web_gets_no_node_s_tickets_by_itself(
    broker: Broker, client: BrokerClient, op: str, fields: dict[str, Any]
) -> None:
    admit(broker, client)
    asked = list(broker.impersonator.asked)

    assert isinstance(refused(lambda: client.ask(op, **fields)), errors.Refused)
    assert broker.impersonator.asked == asked


@pytest.mark.threat("T21")
@pytest.mark.parametrize("op", ["impersonate", "s4u", "keytab", "sign", "seal", "reload", "eval", "_admit", "ADMIT"])
def test_the_broker_does_nothing_but_its_operations(broker: Broker, client: BrokerClient, op: str) -> None:
    assert refused(lambda: client.ask(op, account="root")).code == "broker.unknown_op"
    assert broker.impersonator.asked == []


@pytest.mark.threat("T21")
@pytest.mark.threat("T46")
def test_a_refusal_tells_web_nothing_of_the_token(broker: Broker, client: BrokerClient) -> None:
    shown = evidence(broker, claims={"aud": "https://elsewhere.example.org"})
    error = refused(lambda: client.ask("admit", evidence=shown))
    assert UnverifiedToken(shown["id_token"]) not in (error.title, error.remedy)
    assert "elsewhere" not in f"{error.title} {error.remedy}"
