"""Who calls, and with what: every credential but the genuine one is nobody's, and none is another kind's (T40, T50)."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.access import ApiToken, SessionEpoch
from bridge.audit.record import RecordType
from bridge.errors import BridgeError, Conflict, Defect, NotFound, Outage, PolicyRefused, RequestRefused, TokenRefused
from bridge.model import KillScope
from bridge.oidc.people import PeopleVerifier
from bridge.people import api_tokens
from bridge.people.api_tokens import MAX_IN_FORCE
from bridge.people.caller import Caller, Method
from bridge.people.callers import Callers
from bridge.people.sessions import IDLE, LIFE, RENEW_AFTER, OpenedSession
from bridge.people.tokens import TokenSeal
from bridge.policy.roles import Role
from bridge.seal import Seal
from tests.fakes import REALM
from tests.unit.core.bench import KID, PROVIDER, Broker, OneKey, refused

ROLES = "".join(
    f'\n[[member]]\nprincipal = "{who}@{REALM}"\nroles = {json.dumps(roles)}\n'
    for who, roles in {
        "alice": ["author", "approver", "viewer"],
        "oli": ["operator"],
        "vic": ["viewer"],
        "aud": ["auditor"],
    }.items()
)


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def broker(tmp_path: Path, key: rsa.RSAPrivateKey) -> Iterator[Broker]:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    made = Broker(f"sqlite:///{tmp_path / 'bridge.sqlite3'}", key, tmp_path)
    made.use(roles=ROLES)
    yield made
    made.engine.dispose()


def shows(broker: Broker, value: str) -> Caller:
    """Whoever sends this ``Authorization``."""
    return broker.people.callers.by_authorization(value)


def person(broker: Broker, who: str) -> Caller:
    """Somebody with a ticket."""
    return broker.caller(f"{who}@{REALM}")


def secret_of(broker: Broker, who: str, *scopes: str, days: int = 30) -> str:
    """The secret of a new API token."""
    return broker.tokens.create(person(broker, who), scopes, days, "nightly").secret


def session_of(broker: Broker, caller: Caller) -> OpenedSession:
    """A new session."""
    return broker.sessions.open(caller)


def signed_in(broker: Broker, **changes: Any) -> str:
    """A token of the identity provider."""
    now = int(broker.clock().timestamp())
    claims = {
        "iss": PROVIDER.issuer,
        "aud": PROVIDER.audience,
        "sub": "1",
        "iat": now,
        "exp": now + 300,
        "auth_time": now,
        "preferred_username": "alice",
    }
    return jwt.encode(claims | changes, broker.key, algorithm="RS256", headers={"kid": KID})


def says_no(broker: Broker, value: str, code: str = "caller.unknown") -> None:
    error = refused(lambda: shows(broker, value))
    assert (type(error), error.code) == (TokenRefused, code)


# Kinds


def test_each_kind_of_credential_is_known_by_its_form(broker: Broker) -> None:
    secret, session = secret_of(broker, "alice", "viewer"), session_of(broker, person(broker, "alice"))
    shown = {
        Method.NEGOTIATE: f"Negotiate alice@{REALM}",
        Method.API_TOKEN: f"Bearer {secret}",
        Method.OIDC: f"Bearer {signed_in(broker)}",
        Method.SESSION: f"Session {session.token}",
    }
    callers = {method: shows(broker, value) for method, value in shown.items()}
    assert {method: one.method for method, one in callers.items()} == {method: method for method in shown}
    assert {one.principal for one in callers.values()} == {f"alice@{REALM}"}
    assert [one.person for one in callers.values()] == [True, False, True, True]
    assert [one.account for one in callers.values()] == ["alice", None, None, "alice"]
    assert callers[Method.API_TOKEN].roles == {Role.VIEWER}
    assert {len(callers[method].roles) for method in (Method.NEGOTIATE, Method.OIDC, Method.SESSION)} == {3}
    assert shows(broker, f"bearer {secret}").method is Method.API_TOKEN


@pytest.mark.threat("T40")
def test_a_process_on_the_machine_is_no_person_and_neither_is_who_was_never_asked() -> None:
    for caller in (Callers.by_socket(0, "root(0)"), Caller("alice@REALM.TEST", "alice", frozenset(Role))):
        assert not caller.person
        with pytest.raises(PolicyRefused) as caught:
            caller.require_person()
        assert caught.value.code == "caller.not_a_person"
        with pytest.raises(PolicyRefused):
            caller.require_ticket()


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


# Sessions


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
    broker.clock.shift = RENEW_AFTER - timedelta(seconds=2)
    assert shows(broker, f"Session {token}").renewed is None
    broker.clock.shift = RENEW_AFTER + timedelta(seconds=2)
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


# Identity providers


def test_whom_a_provider_vouches_for_owns_an_account_only_where_the_settings_say_so(broker: Broker) -> None:
    caller = shows(broker, f"Bearer {signed_in(broker)}")
    assert refused(caller.require_account).code == "caller.no_account"
    session = session_of(broker, caller)
    inner = shows(broker, f"Session {session.token}")
    assert (inner.account, inner.issuer, inner.person) == (None, PROVIDER.issuer, True)


@pytest.mark.threat("T40")
def test_without_its_provider_a_sign_in_and_its_session_are_nobodys(broker: Broker) -> None:
    token = signed_in(broker)
    session = session_of(broker, shows(broker, f"Bearer {token}")).token
    callers = broker.people.callers
    less = Callers(
        callers.acceptor,
        REALM,
        callers.roles,
        callers.clock,
        callers.tokens,
        callers.sessions,
        PeopleVerifier([], OneKey(broker.key.public_key())),
    )
    assert refused(lambda: less.by_authorization(f"Bearer {token}")).code == "caller.unknown"
    assert refused(lambda: less.by_authorization(f"Session {session}")).code == "caller.session"
    bare = Callers(callers.acceptor, REALM, callers.roles)
    for value in (f"Bearer {token}", f"Bearer {secret_of(broker, 'alice', 'viewer')}"):
        assert refused(lambda one=value: bare.by_authorization(one)).code == "caller.unknown"
    assert refused(lambda: bare.by_authorization(f"Session {session}")).code == "caller.session"


@pytest.mark.threat("T50")
@pytest.mark.parametrize(
    "changes", [{"aud": "x"}, {"iss": "https://x"}, {"exp": 1}, {"preferred_username": "root"}, {"job_id": "1"}]
)
def test_every_sign_in_that_does_not_count_gets_the_same_answer(broker: Broker, changes: dict[str, Any]) -> None:
    error = refused(lambda: shows(broker, f"Bearer {signed_in(broker, **changes)}"))
    unknown = refused(lambda: shows(broker, f"Bearer cib_{'x' * 43}"))
    assert (error.code, error.title, error.remedy) == (unknown.code, unknown.title, unknown.remedy)
    assert dict(error.context) == {}


def test_keys_that_can_not_be_had_are_an_outage(broker: Broker) -> None:
    class Away:
        def key(self, issuer: str, kid: str) -> Any:
            raise Outage("issuer.keys_too_old", "Of GitLab.", "Run the job again.")

    callers = broker.people.callers
    away = Callers(callers.acceptor, REALM, callers.roles, broker.clock, people=PeopleVerifier([PROVIDER], Away()))
    error = refused(lambda: away.by_authorization(f"Bearer {signed_in(broker)}"))
    assert (type(error), error.code) == (Outage, "caller.provider_down")


@pytest.mark.threat("T16")
def test_nobody_links_themselves_without_a_ticket_at_each_step(broker: Broker) -> None:
    broker.use(accounts="\n[links]\nself_service = true\nadmin = true\n")
    session = shows(broker, f"Session {session_of(broker, person(broker, 'alice')).token}")
    issuer = "https://gitlab.realm.test"
    for act in (
        lambda: broker.people.linking.start(session, issuer),
        lambda: broker.people.linking.found(session, "s", "c"),
        lambda: broker.people.linking.confirm(session, "c"),
    ):
        assert refused(act).code == "caller.no_ticket"
    assert broker.people.linking.start(person(broker, "alice"), issuer)


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
