"""Two operators change policy for some hours, and nobody has more of an emergency than that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bench import Broker, refused
from policy_site import (
    PEOPLE,
    activate,
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
from policy_steps import admit, floor, with_less_denied, with_people
from structlog.testing import capture_logs

from bridge.active import ActivePolicy
from bridge.policy.files import content_hash
from bridge.policy.roles import Role
from bridge.proposals import Activation


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


def test_two_operators_change_policy_for_some_hours_and_everybody_hears_of_it(broker: Broker) -> None:
    before = hash_now(broker)
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "the lab is on fire", files=texts("two"))
    assert hash_now(broker) == before
    confirmed = broker.activating.confirm(who(broker, "omar/admin"), asked.number, asked.content_hash)
    assert confirmed.second == "omar/admin@REALM.TEST"
    with capture_logs() as logs:
        grant = admit(broker).grant
        admit(broker, 302)
    assert [one["log_level"] for one in logs if one["event"] == "policy.emergency"] == ["warning"]
    until = f"under the emergency policy until {confirmed.ends_at:%H:%M} UTC"
    assert (grant.bundle_hash, grant.reason.endswith(until)) == (content_hash(texts("two")), True)
    (first,) = broker.records(type="policy", phase="event")
    assert first["basis"]["bundle_hash"] == grant.bundle_hash
    assert [one["detail"]["act"] for one in broker.records(type="policy", phase="ok")] == ["break_glass", "confirmed"]
    broker.clock.shift = timedelta(minutes=60)
    assert hash_now(broker) == before
    after = admit(broker, 303).grant
    assert (after.bundle_hash, "emergency" in after.reason) == (before, False)


def confirm(broker: Broker, name: str = "omar/admin", asked: Activation | None = None, **changes: Any) -> object:
    """Confirm an emergency, or nearly."""
    asked = asked or broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    caller = changes.pop("caller", None) or who(broker, name)
    named = {"number": asked.number, "read_hash": asked.content_hash, **changes}
    return broker.activating.confirm(caller, **named)


def ask(broker: Broker, name: str = "olga/admin", minutes: int = 60, **changes: Any) -> object:
    """Ask for an emergency, or nearly."""
    caller = changes.pop("caller", None) or who(broker, name)
    return broker.activating.break_glass(caller, minutes, "fire", **(changes or {"files": texts("evil")}))


def in_two_hats(broker: Broker) -> object:
    broker.use_texts(texts(roles=roles({**PEOPLE, "olga": "operator"})))
    return confirm(broker, "olga")


def a_second_confirmation(broker: Broker) -> object:
    over = emergency(broker, texts("two"))
    return confirm(broker, "olga/admin", over)


def after_another_activation(broker: Broker) -> object:
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    in_force(broker, texts("two"))
    return confirm(broker, asked=asked)


def after_its_time(broker: Broker) -> object:
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    broker.clock.shift = timedelta(minutes=60)
    return confirm(broker, asked=asked)


def before_its_time(broker: Broker) -> object:
    """A clock that is wrong dates it into the future."""
    broker.clock.shift = timedelta(days=300)
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    broker.clock.shift = timedelta(0)
    return confirm(broker, asked=asked)


def chain(broker: Broker) -> object:
    emergency(broker, texts("two"), minutes=240)
    broker.clock.shift = timedelta(minutes=239)
    return ask(broker, minutes=2)


def chain_of_short_ones(broker: Broker) -> object:
    for number in range(4):
        broker.clock.shift = timedelta(minutes=60 * number)
        emergency(broker, texts("two"), minutes=60)
    broker.clock.shift = timedelta(minutes=240)
    return ask(broker, minutes=1)


def chain_of_prepared_ones(broker: Broker) -> object:
    """Two are asked for before either is confirmed."""
    olga = who(broker, "olga/admin")
    asked = [broker.activating.break_glass(olga, 240, "fire", files=texts("evil")) for _ in range(2)]
    emergency(broker, texts("two"), minutes=1)
    return confirm(broker, asked=replace(asked[1], number=asked[1].number))


def second_of_two(broker: Broker) -> object:
    olga = who(broker, "olga/admin")
    first = broker.activating.break_glass(olga, 200, "fire", files=texts("two"))
    second = broker.activating.break_glass(olga, 200, "fire", files=texts("evil"))
    broker.activating.confirm(who(broker, "omar/admin"), first.number, first.content_hash)
    return confirm(broker, asked=second)


def after_the_floor_was_raised(broker: Broker) -> object:
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    broker.use_texts(floor(1001))
    return confirm(broker, asked=asked)


def pass_off_a_bundle(broker: Broker) -> object:
    return confirm(broker, read_hash=content_hash(texts("two")))


EMERGENCIES: dict[str, tuple[Callable[[Broker], object], str]] = {
    "alone": (lambda one: confirm(one, "olga/admin"), "policy.four_eyes"),
    "alone, in two hats": (in_two_hats, "policy.four_eyes"),
    "with an approver": (lambda one: confirm(one, "ben/admin"), "caller.role"),
    "with a token": (lambda one: confirm(one, caller=by_token(one, "omar/admin")), "caller.not_a_person"),
    "with a bundle that was not read": (pass_off_a_bundle, "policy.stale"),
    "that was confirmed before": (a_second_confirmation, "policy.nothing_to_confirm"),
    "that there is not": (lambda one: confirm(one, number=7), "policy.nothing_to_confirm"),
    "when another bundle came meanwhile": (after_another_activation, "policy.stale"),
    "when its time is over": (after_its_time, "policy.emergency_over"),
    "when its time has not come": (before_its_time, "policy.emergency_over"),
    "below a floor that was raised": (after_the_floor_was_raised, "policy.privileged"),
    "before the one that was confirmed": (chain_of_prepared_ones, "policy.stale"),
    "more than is left of the day": (second_of_two, "policy.emergency_spent"),
    "one after the other": (chain, "policy.emergency_spent"),
    "one after the other, in small parts": (chain_of_short_ones, "policy.emergency_spent"),
    "for too long": (lambda one: ask(one, minutes=241), "policy.emergency_life"),
    "for no time": (lambda one: ask(one, minutes=0), "policy.emergency_life"),
    "for less than no time": (lambda one: ask(one, minutes=-60), "policy.emergency_life"),
    "as an approver": (lambda one: ask(one, "ben/admin"), "caller.role"),
    "as an author": (lambda one: ask(one, "ada/admin"), "caller.role"),
    "by a token": (lambda one: ask(one, caller=by_token(one, "olga/admin")), "caller.not_a_person"),
    "as root on the machine": (
        lambda one: ask(one, caller=one.people.callers.by_socket(0, "root(0)")),
        "caller.not_a_person",
    ),
    "for a bundle that there is not": (lambda one: ask(one, to_hash="0" * 64), "policy.no_bundle"),
    "for system accounts": (lambda one: ask(one, files=floor(1)), "policy.privileged"),
    "for accounts below the floor": (lambda one: ask(one, files=floor(999)), "policy.privileged"),
    "for a denied account": (lambda one: ask(one, files=with_less_denied("slurm")), "policy.privileged"),
    "for a denied group": (lambda one: ask(one, files=with_less_denied("wheel")), "policy.privileged"),
    "for no bundle": (lambda one: ask(one, to_hash=None), "policy.which_bundle"),
    "for two bundles": (lambda one: ask(one, to_hash=hash_now(one), files=texts("evil")), "policy.which_bundle"),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), EMERGENCIES.values(), ids=EMERGENCIES.keys())
def test_nobody_breaks_the_glass(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"]) == ("policy", "denied")
    assert hash_now(broker) != content_hash(texts("evil"))


@pytest.mark.threat("T40")
def test_an_emergency_makes_nobody_an_author_or_approver(broker: Broker) -> None:
    """Two operators make themselves author and approver, and would stay it."""
    evil = {**PEOPLE, "olga/admin": "operator author", "omar/admin": "operator approver"}
    emergency(broker, texts("two", roles=roles(evil)))
    assert who(broker, "olga/admin").roles == {Role.OPERATOR}
    assert refused(lambda: draft(broker, texts("evil"), "olga/admin")).code == "caller.role"
    ours = approved(broker)
    assert ours.base_number == 0
    # And whoever may ends it: what is approved comes into force over it.
    activate(broker, ours)
    assert hash_now(broker) == ours.content_hash


@pytest.mark.threat("T40")
def test_an_emergency_that_is_over_does_not_come_back_with_the_clock(broker: Broker, tmp_path: Path) -> None:
    before = hash_now(broker)
    emergency(broker, texts("two"), minutes=60)
    broker.clock.shift = timedelta(minutes=61)
    assert hash_now(broker) == before
    broker.clock.shift = timedelta(0)
    assert hash_now(broker) == before
    # A broker that was started again knows it from what is on record.
    fresh = ActivePolicy(broker.policies, broker.register, broker.ledger, broker.clock)
    assert fresh.now().content_hash == content_hash(texts("two"))
    broker.ledger._clock = lambda: broker.clock() + timedelta(minutes=61)
    refused(lambda: draft(broker, {}, "mallory"))
    assert fresh.now().content_hash == before


def test_an_emergency_is_ended_by_going_back(broker: Broker) -> None:
    first = in_force(broker, texts("one")).content_hash
    emergency(broker, texts("two"))
    assert hash_now(broker) == content_hash(texts("two"))
    broker.activating.roll_back(who(broker, "ben/admin"), first, "it is over")
    assert hash_now(broker) == first
