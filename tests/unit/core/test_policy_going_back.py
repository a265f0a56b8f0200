"""Nobody goes back to a bundle that was not approved, or to more rights of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import Broker, refused
from policy_site import (
    PEOPLE,
    approved,
    by_token,
    draft,
    emergency,
    hash_now,
    in_force,
    roles,
    texts,
    who,
)
from policy_steps import admit, with_people


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


def test_one_can_go_back_to_what_was_approved_and_to_the_directorys_first(broker: Broker) -> None:
    first = hash_now(broker)
    two, three = in_force(broker, texts("two")), in_force(broker, texts("three"))
    olga = who(broker, "olga/admin")
    for target in (first, three.content_hash, two.content_hash):
        activation = broker.activating.roll_back(olga, target, "too slow")
        assert hash_now(broker) == target
        assert admit(broker, 300 + activation.number).grant.bundle_hash == target
    # The directory counts no more, whatever is in it.
    broker.use_texts(texts("by hand"))
    broker.active.reload()
    assert hash_now(broker) == two.content_hash
    assert broker.activating.roll_back(olga, first, "again").number == 6
    assert hash_now(broker) == first


def back_to_more_roles(broker: Broker) -> object:
    """A bundle in which mallory approved comes back by the hand of one person."""
    before = in_force(broker, texts("two", roles=roles({**PEOPLE, "mallory": "approver"})))
    in_force(broker, texts("three"))
    return broker.activating.roll_back(who(broker, "olga/admin"), before.content_hash, "sorry")


def back_to_ones_own_role(broker: Broker) -> object:
    before = in_force(broker, texts("two"))
    in_force(broker, texts("three", roles=roles({**PEOPLE, "eve/admin": "approver"})))
    return broker.activating.roll_back(who(broker, "eve/admin"), before.content_hash, "sorry")


def back(name: str, *, token: bool = False) -> Callable[[Broker], object]:
    """Somebody who may not."""

    def attack(broker: Broker) -> object:
        first = hash_now(broker)
        in_force(broker, texts("two"))
        caller = by_token(broker, name) if token else who(broker, name)
        return broker.activating.roll_back(caller, first, "sorry")

    return attack


def back_to(choose: Callable[[Broker], str]) -> Callable[[Broker], object]:
    """Something that was never in force."""
    return lambda broker: broker.activating.roll_back(who(broker, "olga/admin"), choose(broker), "sorry")


ROLL_BACKS: dict[str, tuple[Callable[[Broker], object], str]] = {
    "to roles that others lost": (back_to_more_roles, "policy.more_roles"),
    "to roles that they lost themselves": (back_to_ones_own_role, "policy.more_roles"),
    "to what was only proposed": (back_to(lambda one: draft(one).content_hash), "policy.never_active"),
    "to what was only approved": (back_to(lambda one: approved(one).content_hash), "policy.never_active"),
    "to what there is not": (back_to(lambda one: "0" * 64), "policy.never_active"),
    "to what is in force": (
        back_to(lambda one: in_force(one, texts("two")).content_hash),
        "policy.in_force",
    ),
    "as an author": (back("ada/admin"), "caller.role"),
    "as a viewer": (back("vic"), "caller.role"),
    "by a token": (back("olga/admin", token=True), "caller.not_a_person"),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), ROLL_BACKS.values(), ids=ROLL_BACKS.keys())
def test_nobody_goes_back(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"]) == ("policy", "denied")


@pytest.mark.threat("T40")
def test_nobody_goes_back_to_what_only_an_emergency_had_in_force(broker: Broker) -> None:
    over = emergency(broker, texts("two"), minutes=5)
    in_force(broker, texts("one"))
    olga = who(broker, "olga/admin")
    error = refused(lambda: broker.activating.roll_back(olga, over.content_hash, "again"))
    assert error.code == "policy.never_active"
