"""Nobody activates what is not approved, is stale, or was changed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from bench import Broker, refused
from policy_site import (
    PEOPLE,
    activate,
    approved,
    by_token,
    draft,
    hash_now,
    in_force,
    roles,
    submitted,
    texts,
    who,
)
from policy_steps import rewrite, with_people
from sqlalchemy import text

from bridge.policy.files import content_hash
from bridge.proposals import APPROVAL_LIFE


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


def edit_after_approval(broker: Broker) -> object:
    one = approved(broker)
    return activate(broker, rewrite(broker, one, texts("evil")))


def old_approval_of_edited(broker: Broker) -> object:
    one = approved(broker)
    rewrite(broker, one, texts("evil"))
    return activate(broker, one)


def submitted_again(broker: Broker) -> object:
    one = approved(broker)
    again = broker.proposing.submit(who(broker, "ada/admin"), one.proposal_id, one.version)
    return activate(broker, again)


def a_second_time(broker: Broker) -> object:
    one = approved(broker)
    activate(broker, one)
    return activate(broker, replace(one, version=one.version + 1))


def replayed(broker: Broker) -> object:
    one = approved(broker)
    activate(broker, one)
    return activate(broker, one)


def over_another(broker: Broker) -> object:
    one = approved(broker)
    in_force(broker, texts("two"))
    return activate(broker, one)


def over_what_came_back(broker: Broker) -> object:
    """The base changed, and changed back."""
    before = hash_now(broker)
    one = approved(broker)
    in_force(broker, texts("two"))
    broker.activating.roll_back(who(broker, "olga/admin"), before, "too early")
    assert hash_now(broker) == before
    return activate(broker, one)


def over_another_directory(broker: Broker) -> object:
    one = approved(broker)
    broker.use_texts(texts("by hand"))
    return activate(broker, one)


def too_late(broker: Broker) -> object:
    one = approved(broker)
    broker.clock.shift = APPROVAL_LIFE
    return activate(broker, one)


def after_losing_every_role(broker: Broker) -> object:
    caller, one = who(broker, "olga/admin"), approved(broker)
    broker.use_texts(texts(roles=roles({**PEOPLE, "olga/admin": "viewer"})))
    return broker.activating.activate(caller, one.proposal_id, one.version, "now")


def with_swapped_files(broker: Broker) -> object:
    """Whoever writes the database swaps the files under their hash."""
    one = approved(broker)
    with broker.engine.begin() as connection:
        statement = text("UPDATE bundles SET files = :files WHERE content_hash = :hash")
        connection.execute(statement, {"files": json.dumps(texts("evil")), "hash": one.content_hash})
    return activate(broker, one)


ACTIVATIONS: dict[str, tuple[Callable[[Broker], object], str]] = {
    "what was edited after the approval": (edit_after_approval, "policy.state"),
    "what was edited, by its old approval": (old_approval_of_edited, "policy.changed"),
    "what was submitted again": (submitted_again, "policy.state"),
    "what is activated already": (a_second_time, "policy.state"),
    "an approval twice": (replayed, "policy.changed"),
    "over another bundle than was read": (over_another, "policy.stale"),
    "over a bundle that went and came back": (over_what_came_back, "policy.stale"),
    "over a directory that was changed": (over_another_directory, "policy.stale"),
    "an old approval": (too_late, "policy.approval_expired"),
    "after they lost the role": (after_losing_every_role, "caller.role"),
    "files that were swapped": (with_swapped_files, "policy.content"),
    "what nobody approved": (lambda one: activate(one, submitted(one)), "policy.state"),
    "as its author": (lambda one: activate(one, approved(one), "ada/admin"), "caller.role"),
    "as a viewer": (lambda one: activate(one, approved(one), "vic"), "caller.role"),
    "as a stranger": (lambda one: activate(one, approved(one), "mallory"), "caller.role"),
    "by a token": (
        lambda one: one.activating.activate(by_token(one, "olga/admin"), approved(one).proposal_id, 3, "now"),
        "caller.not_a_person",
    ),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_nobody_activates(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"], record["code"]) == ("policy", "denied", code)
    assert all(one.content_hash != content_hash(texts("evil")) for one in broker.register.read().activations)
    assert hash_now(broker) != content_hash(texts("evil"))


@pytest.mark.threat("T40")
@pytest.mark.parametrize("act", ["rewrite", "submit", "withdraw"])
@pytest.mark.parametrize(("name", "code"), [("eve/admin", "policy.not_author"), ("ben/admin", "caller.role")])
def test_nobody_changes_what_another_proposed(broker: Broker, act: str, name: str, code: str) -> None:
    one = draft(broker)
    more = (texts("evil"),) if act == "rewrite" else ()
    change = getattr(broker.proposing, act)
    assert refused(lambda: change(who(broker, name), one.proposal_id, one.version, *more)).code == code
    assert broker.register.read().proposals == (one,)
