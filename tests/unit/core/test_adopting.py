"""A register whose seal is gone is taken over by root on the broker's machine, on record, and by nobody else."""

from __future__ import annotations

import pytest
from bench import ISSUER, Broker, refused
from sqlalchemy import text

from bridge.model import KillScope
from bridge.people.caller import Caller, Method
from bridge.policy.roles import Role

ROLES = """
[[member]]
principal = "olga/admin@REALM.TEST"
roles = ["operator", "approver", "author", "auditor", "viewer"]
"""


@pytest.fixture
def broken(broker: Broker) -> Broker:
    """A broker whose register somebody has changed: the switch is lifted."""
    broker.use(roles=ROLES)
    root = broker.people.callers.by_socket(0, "root(0)")
    broker.people.killing.throw(root, KillScope.USER, "r", issuer=ISSUER, number=102, account=None)
    with broker.engine.begin() as connection:
        connection.execute(text("UPDATE kill_switches SET lifted_at = 1, lifted_by = 'nobody'"))
        connection.execute(text("UPDATE register_head SET seal = x'00'"))
    assert refused(lambda: broker.admission.admit(broker.evidence())).code == "register.broken"
    return broker


def test_root_takes_a_broken_register_over_on_record(broken: Broker) -> None:
    root = broken.people.callers.by_socket(0, "root(0)")
    register = broken.people.adopting.adopt(root, "looked at all of it")
    assert broken.admission.admit(broken.evidence()).grant.account.name == "alice"
    (record,) = broken.records(type="service")
    assert record["detail"] == {
        "act": "register adopted",
        "by": "local:root(0)",
        "reason": "looked at all of it",
        "revision": register.revision,
        "active_links": 0,
        "consents": 0,
        "switches_in_force": 0,
    }


def test_a_head_that_was_deleted_can_be_taken_over_once_the_mark_is_gone(broker: Broker) -> None:
    with broker.engine.begin() as connection:
        connection.execute(text("DELETE FROM register_head"))
    root = broker.people.callers.by_socket(0, "root(0)")
    assert broker.people.adopting.adopt(root, "a new disk").revision == 1
    assert broker.admission.admit(broker.evidence()).attempt == 1


@pytest.mark.threat("T21")
@pytest.mark.parametrize("who", ["web", "an operator", "anybody"])
def test_nobody_else_seals_what_they_have_written(broken: Broker, who: str) -> None:
    callers = broken.people.callers
    caller = {
        "web": lambda: callers.by_socket(990, "root(0)"),
        "an operator": lambda: Caller("olga@REALM.TEST", "olga", frozenset({Role.OPERATOR}), method=Method.NEGOTIATE),
        "anybody": lambda: Caller("alice@REALM.TEST", "alice", frozenset(), method=Method.NEGOTIATE),
    }[who]()
    assert refused(lambda: broken.people.adopting.adopt(caller, "r")).code == "register.root_only"
    assert refused(lambda: broken.admission.admit(broken.evidence())).code == "register.broken"


def test_it_needs_a_reason(broken: Broker) -> None:
    root = broken.people.callers.by_socket(0, "root(0)")
    for reason in ("", "  ", "x" * 501):
        assert refused(lambda reason=reason: broken.people.adopting.adopt(root, reason)).code == "register.reason"
