"""API tokens: nothing but the exact secret, no more than their owner's roles, and none without an end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from callers_site import person, says_no, secret_of, shows, with_roles

from bridge.errors import Conflict, NotFound, PolicyRefused, RequestRefused, TokenRefused
from bridge.people import api_tokens
from bridge.people.api_tokens import MAX_IN_FORCE
from bridge.policy.roles import Role
from tests.fakes import REALM
from tests.unit.core.bench import Broker, refused


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    return with_roles(broker)


FORMS: list[Callable[[str], str]] = [
    lambda secret: secret,
    lambda secret: f"Bearer{secret}",
    lambda secret: f"Bearer  {secret}",
    lambda secret: f"Bearer {secret} ",
    lambda secret: f"Bearer {secret}\n",
    lambda secret: f"Bearer {secret}=",
    lambda secret: f"Bearer {secret[:-1]}",
    lambda secret: f"Bearer {secret}A",
    lambda secret: f"Bearer {secret[4:]}",
    lambda secret: f"Bearer cib{secret[4:]}",
    lambda secret: f"Bearer {secret.upper()}",
    lambda secret: f"Bearer {secret.swapcase()}",
    lambda secret: f"Bearer CIB_{secret[4:]}",
    lambda secret: f"Bearer cib_{secret[4:].swapcase()}",
    lambda secret: f"Bearer cib_{'A' * 43}",
    lambda secret: f"Bearer {secret},{secret}",
    lambda secret: f"Bearer {secret}, Negotiate oli@{REALM}",
    lambda secret: f"Basic {secret}",
    lambda secret: f"Token {secret}",
    lambda secret: f"Session {secret}",
    lambda secret: f"Negotiate {secret}",
    lambda secret: "Bearer ",
    lambda secret: "Bearer",
]


@pytest.mark.threat("T40")
@pytest.mark.parametrize("form", FORMS, ids=[str(number) for number in range(len(FORMS))])
def test_nothing_but_the_exact_secret_is_the_token(broker: Broker, form: Callable[[str], str]) -> None:
    with pytest.raises(TokenRefused):
        shows(broker, form(secret_of(broker, "alice", "viewer")))


@pytest.mark.threat("T50")
def test_an_unknown_an_expired_and_a_revoked_token_get_the_same_answer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, late = secret_of(broker, "alice", "viewer"), secret_of(broker, "alice", "viewer", days=1)
    oldest = broker.tokens.listed(person(broker, "alice"))[0]
    broker.tokens.revoke(person(broker, "alice"), oldest.token_id)
    broker.clock.shift = timedelta(days=1)
    compared: list[tuple[int, int]] = []
    honest = api_tokens.hmac.compare_digest
    monkeypatch.setattr(
        api_tokens.hmac, "compare_digest", lambda a, b: (compared.append((len(a), len(b))), honest(a, b))[1]
    )
    errors = [refused(lambda one=one: shows(broker, f"Bearer {one}")) for one in (gone, late, f"cib_{'x' * 43}")]
    assert {(one.code, one.title, one.remedy, str(dict(one.context))) for one in errors} == {
        ("caller.unknown", errors[0].title, errors[0].remedy, "{}")
    }
    assert [one for one in compared if one == (64, 64)] == [(64, 64)] * 3


@pytest.mark.threat("T40")
def test_a_token_ends_to_the_moment_and_not_before(broker: Broker) -> None:
    secret = secret_of(broker, "alice", "viewer", days=1)
    broker.clock.shift = timedelta(days=1, seconds=-30)
    assert shows(broker, f"Bearer {secret}").roles == {Role.VIEWER}
    broker.clock.shift = timedelta(days=1)
    says_no(broker, f"Bearer {secret}")


# API tokens: scopes


@pytest.mark.threat("T40")
@pytest.mark.parametrize("scope", ["operator", "auditor"])
def test_nobody_makes_a_token_for_a_role_that_they_have_not(broker: Broker, scope: str) -> None:
    error = refused(lambda: secret_of(broker, "alice", "viewer", scope))
    assert (type(error), error.code) == (PolicyRefused, "caller.role")
    assert broker.tokens.listed(person(broker, "alice")) == ()
    (record,) = broker.records(type="access", phase="denied")
    assert record["code"] == "caller.role"
    assert record["detail"]["by"] == f"alice@{REALM}"
    assert record["reference"] == error.reference


@pytest.mark.parametrize(
    ("scopes", "days", "note", "code"),
    [
        ([], 30, "n", "api_token.scopes"),
        (["viewer", "viewer"], 30, "n", "api_token.scopes"),
        (["Viewer"], 30, "n", "api_token.scopes"),
        (["viewer "], 30, "n", "api_token.scopes"),
        (["root"], 30, "n", "api_token.scopes"),
        (["viewer author"], 30, "n", "api_token.scopes"),
        (["viewer"], 0, "n", "api_token.life"),
        (["viewer"], -1, "n", "api_token.life"),
        (["viewer"], 367, "n", "api_token.life"),
        (["viewer"], 10**12, "n", "api_token.life"),
        (["viewer"], 30, "", "api_token.note"),
        (["viewer"], 30, " \t", "api_token.note"),
        (["viewer"], 30, "a\nb", "api_token.note"),
        (["viewer"], 30, "\u202eevil", "api_token.note"),
        (["viewer"], 30, "n" * 201, "api_token.note"),
    ],
)
def test_a_token_without_an_end_a_scope_or_a_reason_is_none(
    broker: Broker, scopes: list[str], days: int, note: str, code: str
) -> None:
    error = refused(lambda: broker.tokens.create(person(broker, "alice"), scopes, days, note))
    assert (type(error), error.code) == (RequestRefused, code)


@pytest.mark.threat("T40")
def test_who_loses_a_role_loses_it_in_all_their_tokens_at_once(broker: Broker) -> None:
    secret = secret_of(broker, "alice", "author", "viewer")
    assert shows(broker, f"Bearer {secret}").roles == {Role.AUTHOR, Role.VIEWER}
    broker.use_texts({**_texts(broker), "roles.toml": _member("alice", "author", "operator")})
    assert shows(broker, f"Bearer {secret}").roles == {Role.AUTHOR}
    broker.use_texts({**_texts(broker), "roles.toml": _member("oli", "operator")})
    assert shows(broker, f"Bearer {secret}").roles == frozenset()
    broker.use_texts({**_texts(broker), "roles.toml": _member("alice", *Role)})
    assert shows(broker, f"Bearer {secret}").roles == {Role.AUTHOR, Role.VIEWER}


def _texts(broker: Broker) -> dict[str, str]:
    return {
        str(path.relative_to(broker.policies)): path.read_text(encoding="utf-8")
        for path in broker.policies.rglob("*")
        if path.is_file()
    }


def _member(who: str, *roles: str) -> str:
    return f'[[member]]\nprincipal = "{who}@{REALM}"\nroles = {json.dumps([str(one) for one in roles])}\n'


@pytest.mark.threat("T40")
def test_a_program_makes_no_tokens_opens_no_session_and_is_no_owner(broker: Broker) -> None:
    program = shows(broker, f"Bearer {secret_of(broker, 'alice', 'author', 'approver')}")
    acts: dict[str, Callable[[], Any]] = {
        "caller.not_a_person": lambda: broker.tokens.create(program, ["author"], 366, "more"),
        "caller.no_new_session": lambda: broker.sessions.open(program),
        "caller.no_account": program.require_account,
        "caller.no_ticket": program.require_ticket,
    }
    assert {refused(act).code for act in acts.values()} == set(acts)
    assert refused(lambda: broker.sessions.close_all(program)).code == "caller.not_a_person"
    assert refused(lambda: broker.people.linking.decide(program, "X", approve=True, reason="r")).code == (
        "caller.not_a_person"
    )


def test_one_can_not_have_tokens_without_number(broker: Broker) -> None:
    for _ in range(MAX_IN_FORCE):
        secret_of(broker, "alice", "viewer")
    error = refused(lambda: secret_of(broker, "alice", "viewer"))
    assert (type(error), error.code) == (Conflict, "api_token.too_many")
    assert secret_of(broker, "vic", "viewer")
    broker.tokens.revoke(person(broker, "alice"), broker.tokens.listed(person(broker, "alice"))[0].token_id)
    assert secret_of(broker, "alice", "viewer")


# API tokens: ends and lists


@pytest.mark.parametrize("who", ["alice", "oli"])
def test_its_owner_and_an_operator_can_end_a_token_at_once(broker: Broker, who: str) -> None:
    secret = secret_of(broker, "alice", "viewer")
    token_id = broker.tokens.listed(person(broker, "alice"))[0].token_id
    ended = broker.tokens.revoke(person(broker, who), token_id)
    assert ended.revoked_by == f"{who}@{REALM}"
    says_no(broker, f"Bearer {secret}")
    again = broker.tokens.revoke(person(broker, "oli"), token_id)
    assert (again.revoked_by, again.revoked_at) == (ended.revoked_by, ended.revoked_at)
    acts = [one["detail"]["act"] for one in broker.records(type="access", phase="ok")]
    assert acts == ["token_created", "token_revoked"]
    assert {one["reference"] for one in broker.records(type="access", phase="ok")} == {token_id}


@pytest.mark.threat("T50")
@pytest.mark.parametrize("who", ["vic", "aud", "mallory"])
def test_somebody_elses_token_looks_like_none_at_all(broker: Broker, who: str) -> None:
    secret_of(broker, "alice", "viewer")
    token_id = broker.tokens.listed(person(broker, "alice"))[0].token_id
    errors = [refused(lambda one=one: broker.tokens.revoke(person(broker, who), one)) for one in (token_id, "X")]
    assert {(type(one), one.code, one.title) for one in errors} == {(NotFound, "api_token.unknown", errors[0].title)}
    seen = broker.tokens.listed(person(broker, who))
    assert len(seen) == (1 if who == "aud" else 0)


@pytest.mark.threat("T40")
def test_a_program_ends_no_token_without_the_scope_for_it(broker: Broker) -> None:
    first, second = secret_of(broker, "oli", "operator"), secret_of(broker, "alice", "viewer")
    ids = [one.token_id for one in broker.tokens.listed(person(broker, "oli"))]
    program = shows(broker, f"Bearer {second}")
    for token_id in ids:
        assert refused(lambda one=token_id: broker.tokens.revoke(program, one)).code == "api_token.unknown"
    assert broker.tokens.revoke(shows(broker, f"Bearer {first}"), ids[1]).revoked_by == f"oli@{REALM}"


def test_the_hour_of_the_last_use_is_written_once(broker: Broker) -> None:
    secret = secret_of(broker, "alice", "viewer")
    assert broker.tokens.listed(person(broker, "alice"))[0].last_used_at is None
    head = broker.register.read().revision
    for _ in range(3):
        shows(broker, f"Bearer {secret}")
    used = broker.tokens.listed(person(broker, "alice"))[0].last_used_at
    assert used is not None
    assert (used.minute, used.second, used.microsecond) == (0, 0, 0)
    broker.clock.shift = timedelta(hours=2)
    shows(broker, f"Bearer {secret}")
    assert broker.tokens.listed(person(broker, "alice"))[0].last_used_at == used + timedelta(hours=2)
    assert broker.register.read().revision == head
