"""Each kind of credential is known by its form, and says no more than it proves."""

from __future__ import annotations

import pytest
from callers_site import person, secret_of, session_of, shows, signed_in, with_roles

from bridge.errors import PolicyRefused
from bridge.people.caller import Caller, Method
from bridge.people.callers import Callers
from bridge.policy.roles import Role
from tests.fakes import REALM
from tests.unit.core.bench import Broker


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    return with_roles(broker)


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
