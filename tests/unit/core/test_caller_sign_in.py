"""Sign-ins at an identity provider: whom it vouches for owns nothing but what the settings say."""

from __future__ import annotations

from typing import Any

import pytest
from callers_site import person, secret_of, session_of, shows, signed_in, with_roles

from bridge.errors import Outage
from bridge.oidc.people import PeopleVerifier
from bridge.people.callers import Callers
from tests.fakes import REALM
from tests.unit.core.bench import PROVIDER, Broker, OneKey, refused


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    return with_roles(broker)


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
