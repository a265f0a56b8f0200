"""Sessions: their principal's alone, until their end, and none that the broker did not seal."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from callers_site import person, says_no, secret_of, session_of, shows, signed_in, with_roles

from bridge.errors import RequestRefused, TokenRefused
from bridge.people.callers import Callers
from bridge.people.sessions import IDLE, LIFE, RENEW_AFTER
from bridge.people.tokens import TokenSeal
from bridge.seal import Seal
from tests.fakes import REALM
from tests.unit.core.bench import Broker, refused


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    return with_roles(broker)


def test_a_session_is_its_principals_until_its_end_and_dies_when_idle(broker: Broker) -> None:
    token = session_of(broker, person(broker, "alice")).token
    assert shows(broker, f"Session {token}").renewed is None
    used = timedelta(0)
    while used + IDLE - timedelta(minutes=1) < LIFE:
        used += IDLE - timedelta(minutes=1)
        broker.clock.shift = used
        renewed = shows(broker, f"Session {token}").renewed
        assert renewed is not None or LIFE - used < IDLE
        token = renewed or token
        facts = json.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "=="))
        assert facts["expires"] - facts["began"] <= LIFE.total_seconds()
    broker.clock.shift = LIFE + timedelta(seconds=1)
    says_no(broker, f"Session {token}", "caller.session")
    broker.clock.shift = timedelta(0)
    idle = session_of(broker, person(broker, "alice")).token
    broker.clock.shift = IDLE + timedelta(seconds=1)
    says_no(broker, f"Session {idle}", "caller.session")


def test_a_fresh_token_is_not_made_anew(broker: Broker) -> None:
    token = session_of(broker, person(broker, "alice")).token
    broker.clock.shift = RENEW_AFTER - timedelta(minutes=1)
    assert shows(broker, f"Session {token}").renewed is None
    broker.clock.shift = RENEW_AFTER + timedelta(minutes=1)
    assert shows(broker, f"Session {token}").renewed is not None


@pytest.mark.threat("T40")
def test_no_session_comes_of_a_session_or_a_process(broker: Broker) -> None:
    inner = shows(broker, f"Session {session_of(broker, person(broker, 'alice')).token}")
    for caller in (inner, Callers.by_socket(0, "root(0)")):
        assert refused(lambda one=caller: broker.sessions.open(one)).code == "caller.no_new_session"
    assert len(broker.records(type="access", phase="denied")) == 2


@pytest.mark.threat("T40")
@pytest.mark.parametrize("by", ["alice", "oli"])
def test_ending_all_sessions_ends_each_and_no_others(broker: Broker, by: str) -> None:
    tokens = [session_of(broker, person(broker, "alice")).token for _ in range(2)]
    other = session_of(broker, person(broker, "vic")).token
    broker.clock.shift = RENEW_AFTER * 2
    tokens.append(str(shows(broker, f"Session {tokens[0]}").renewed))
    broker.sessions.close_all(person(broker, by), None if by == "alice" else f"alice@{REALM}")
    for token in tokens:
        says_no(broker, f"Session {token}", "caller.session")
    assert shows(broker, f"Session {other}").principal == f"vic@{REALM}"
    assert shows(broker, f"Session {session_of(broker, person(broker, 'alice')).token}").person
    (record,) = [one for one in broker.records(type="access") if one["detail"]["act"] == "sessions_ended"]
    assert record["detail"]["by"] == f"{by}@{REALM}"


@pytest.mark.threat("T40")
@pytest.mark.parametrize("who", ["vic", "aud", "mallory"])
def test_nobody_else_ends_somebodys_sessions(broker: Broker, who: str) -> None:
    token = session_of(broker, person(broker, "alice")).token
    error = refused(lambda: broker.sessions.close_all(person(broker, who), f"alice@{REALM}"))
    assert error.code == "caller.role"
    assert shows(broker, f"Session {token}").person


@pytest.mark.parametrize("name", ["", "alice", "alice@realm.test", "a b@REALM.TEST", "alice@REALM.TEST\n", "x" * 300])
def test_only_principals_have_sessions_to_end(broker: Broker, name: str) -> None:
    error = refused(lambda: broker.sessions.close_all(person(broker, "oli"), name))
    assert (type(error), error.code) == (RequestRefused, "session.principal")


def _forged(broker: Broker, **changes: Any) -> str:
    """A session's token with other facts, under another key than the broker's."""
    facts = {
        "principal": f"alice@{REALM}",
        "session_id": "AAAA-AAAA-AAAA",
        "issuer": "",
        "epoch": 0,
        "began": int(broker.clock().timestamp()),
    }
    return TokenSeal(Seal(b"f" * 32)).make("session", facts | changes, broker.clock() + IDLE)


SPOILED: dict[str, Callable[[Broker, str], str]] = {
    "nothing": lambda broker, token: "",
    "cut": lambda broker, token: token[:-1],
    "longer": lambda broker, token: f"{token}A",
    "another seal": lambda broker, token: f"{token.partition('.')[0]}.{'A' * 43}",
    "seal of another": lambda broker, token: (
        f"{token.partition('.')[0]}.{session_of(broker, person(broker, 'oli')).token.partition('.')[2]}"
    ),
    "another key": lambda broker, token: _forged(broker),
    "twice": lambda broker, token: f"{token} {token}",
    "another purpose": lambda broker, token: TokenSeal(Seal(b"s" * 32)).make(
        "link-state",
        {"principal": f"alice@{REALM}", "session_id": "X", "issuer": "", "epoch": 0, "began": 0},
        broker.clock() + IDLE,
    ),
    "an API token": lambda broker, token: secret_of(broker, "alice", "viewer"),
    "a sign-in": lambda broker, token: signed_in(broker),
    "a principal": lambda broker, token: f"alice@{REALM}",
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize("how", SPOILED)
def test_what_the_broker_did_not_seal_is_no_session(broker: Broker, how: str) -> None:
    token = session_of(broker, person(broker, "alice")).token
    says_no(broker, f"Session {SPOILED[how](broker, token)}", "caller.session")


@pytest.mark.threat("T40")
def test_a_session_is_no_bearer_token(broker: Broker) -> None:
    token = session_of(broker, person(broker, "alice")).token
    for value in (f"Bearer {token}", f"Bearer cib_{token[:43]}", f"Negotiate {token}"):
        with pytest.raises(TokenRefused):
            shows(broker, value)


@pytest.mark.threat("T40")
def test_the_session_of_a_later_epoch_than_the_registers_is_none(broker: Broker) -> None:
    """What was sealed before the register was put back, as far as that can be."""
    seal, now = TokenSeal(Seal(b"s" * 32)), broker.clock()
    facts = {"principal": f"alice@{REALM}", "session_id": "X", "issuer": "", "began": int(now.timestamp())}
    good = seal.make("session", {**facts, "epoch": 0}, now + IDLE)
    assert shows(broker, f"Session {good}").principal == f"alice@{REALM}"
    for epoch in (-1, 1, 7):
        says_no(broker, f"Session {seal.make('session', {**facts, 'epoch': epoch}, now + IDLE)}", "caller.session")
