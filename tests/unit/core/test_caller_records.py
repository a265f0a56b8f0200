"""What is kept of credentials, and of what was done with them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from callers_site import person, secret_of, session_of, shows, signed_in, with_roles

from bridge.access import ApiToken, SessionEpoch
from bridge.audit.record import RecordType
from bridge.errors import BridgeError, Defect
from bridge.model import KillScope
from bridge.people.sessions import RENEW_AFTER
from tests.fakes import REALM
from tests.unit.core.bench import PROVIDER, Broker, refused


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    return with_roles(broker)


# The register, and what leaks


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE api_tokens SET scopes = 'approver author operator viewer'",
        "UPDATE api_tokens SET principal = 'oli@REALM.TEST', created_by = 'oli@REALM.TEST'",
        "UPDATE api_tokens SET expires_at = expires_at + 86400000000",
        "UPDATE api_tokens SET secret_hash = '" + "0" * 64 + "' WHERE revoked_at IS NULL",
        "UPDATE api_tokens SET revoked_at = NULL, revoked_by = NULL",
        "DELETE FROM api_token_uses; DELETE FROM api_tokens",
        "UPDATE session_epochs SET epoch = 7",
        "DELETE FROM session_epochs",
        "INSERT INTO session_epochs VALUES ('vic@REALM.TEST', 1, 'x', 1)",
    ],
)
def test_who_can_write_the_database_lets_nobody_in(broker: Broker, tmp_path: Path, attack: str) -> None:
    secret_of(broker, "alice", "viewer")
    secret_of(broker, "alice", "viewer", days=10)
    broker.tokens.revoke(person(broker, "alice"), broker.tokens.listed(person(broker, "alice"))[0].token_id)
    broker.sessions.close_all(person(broker, "alice"))
    with closing(sqlite3.connect(tmp_path / "bridge.sqlite3", isolation_level=None)) as connection:
        connection.executescript(attack)
    again = Broker(f"sqlite:///{tmp_path / 'bridge.sqlite3'}", broker.key, tmp_path)
    with pytest.raises(Defect) as caught:
        again.tokens.find(f"cib_{'x' * 43}")
    assert caught.value.code == "register.broken"
    again.engine.dispose()


def test_every_member_of_a_token_and_an_epoch_is_in_the_register(broker: Broker) -> None:
    secret_of(broker, "alice", "viewer", "author")
    broker.sessions.close_all(person(broker, "alice"))
    register = broker.register.read()
    (token,), (epoch,) = register.api_tokens, register.session_epochs
    assert isinstance(token, ApiToken)
    assert token.scopes == ("author", "viewer")
    assert isinstance(epoch, SessionEpoch)
    assert (epoch.principal, epoch.epoch) == (f"alice@{REALM}", 1)


@pytest.mark.threat("T46")
def test_no_secret_is_in_a_repr_an_error_the_log_or_the_database(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = broker.tokens.create(person(broker, "alice"), ["viewer"], 30, "nightly")
    session, token = session_of(broker, person(broker, "alice")), signed_in(broker)
    broker.clock.shift = RENEW_AFTER * 2
    callers = [shows(broker, f"Bearer {made.secret}"), shows(broker, f"Session {session.token}")]
    canaries = {made.secret, session.token, token, str(callers[1].renewed)}
    canaries |= {one.rpartition(".")[2] for one in canaries} | {made.secret[4:]}
    broker.tokens.revoke(person(broker, "alice"), made.token.token_id)
    errors: list[BridgeError] = [
        refused(lambda one=one: shows(broker, one))
        for one in (f"Bearer {made.secret}", f"Bearer {token}A", f"Bearer {signed_in(broker, aud='x')}")
    ]
    broker.sessions.close_all(person(broker, "alice"))
    errors.append(refused(lambda: shows(broker, f"Session {session.token}")))
    said = repr([made, session, callers, broker.register.read()])
    said += "".join(f"{one!r} {dict(one.context)}" for one in errors)
    said += json.dumps(broker.records())
    said += "".join(capfd.readouterr())
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("bridge.sqlite3*"))
    for canary in canaries:
        assert canary not in said
        assert canary.encode() not in kept


def test_a_recorded_act_says_how_it_was_shown_who_did_it(broker: Broker) -> None:
    session_of(broker, shows(broker, f"Bearer {signed_in(broker)}"))
    secret_of(broker, "alice", "viewer")
    records = broker.records(type=RecordType.ACCESS.value, phase="ok")
    assert [(one["detail"]["act"], one["detail"]["method"]) for one in records] == [
        ("session_opened", "oidc"),
        ("token_created", "negotiate"),
    ]
    assert records[0]["detail"]["provider"] == PROVIDER.issuer


@pytest.mark.threat("T40")
def test_the_record_names_the_token_with_which_a_program_acted(broker: Broker) -> None:
    program = shows(broker, f"Bearer {secret_of(broker, 'oli', 'operator')}")
    broker.people.killing.throw(program, KillScope.ALL, "stop", issuer=None, number=None, account=None)
    (record,) = broker.records(type="kill", phase="ok")
    assert (
        record["detail"].items()
        >= {"by": f"oli@{REALM}", "method": "api_token", "credential": program.token_id}.items()
    )
