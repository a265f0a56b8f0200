"""What is in force counts for every broker, for who comes in, and for runs in flight."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bench import Broker, refused
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from policy_site import (
    activate,
    approved,
    emergency,
    hash_now,
    in_force,
    texts,
    who,
    without_alice,
)
from policy_steps import admit, with_people

from bridge.broker.listed import ListedTargets
from bridge.errors import Conflict
from bridge.policy.files import content_hash
from bridge.seal import GrantSeal, Seal
from bridge.ticketing import Use


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


def change_once(broker: Broker, *every: dict[str, str]) -> None:
    """Bring a bundle into force between decision and intent, each time that somebody decides."""
    left = list(every)
    lookup = broker.directory.lookup

    def changing(name: str) -> Any:
        if left:
            in_force(broker, left.pop(0))
        return lookup(name)

    broker.directory.lookup = changing  # type: ignore[method-assign]


@pytest.mark.threat("T48")
def test_nobody_is_let_in_by_a_policy_that_is_no_longer_in_force(broker: Broker) -> None:
    change_once(broker, without_alice())
    error = refused(lambda: admit(broker))
    assert error.code == "account.not_mapped"
    assert broker.impersonator.asked == []
    assert broker.records(type="admission", phase="intent") == []
    (record,) = broker.records(type="admission")
    assert record["basis"]["bundle_hash"] == content_hash(without_alice())


@pytest.mark.threat("T48")
def test_who_is_let_in_by_the_new_policy_too_is_let_in_by_it(broker: Broker) -> None:
    change_once(broker, texts("two"))
    assert admit(broker).grant.bundle_hash == content_hash(texts("two"))
    assert len(broker.records(type="admission", phase="intent")) == 1


@pytest.mark.threat("T48")
def test_nobody_is_let_in_while_policy_changes_again_and_again(broker: Broker) -> None:
    change_once(broker, texts("two"), texts("three"))
    error = refused(lambda: admit(broker))
    assert (error.code, type(error)) == ("policy.changed_twice", Conflict)
    assert broker.impersonator.asked == []
    (record,) = broker.records(type="admission")
    assert (record["phase"], record["code"]) == ("denied", "policy.changed_twice")
    assert admit(broker, 302).grant.bundle_hash == content_hash(texts("three"))


@pytest.mark.threat("T48")
def test_nobody_is_let_in_by_an_emergency_that_ended_meanwhile(broker: Broker) -> None:
    before = hash_now(broker)
    emergency(broker, texts("two"), minutes=30)
    lookup = broker.directory.lookup

    def late(name: str) -> Any:
        broker.clock.shift = timedelta(minutes=30)
        return lookup(name)

    broker.directory.lookup = late  # type: ignore[method-assign]
    grant = admit(broker).grant
    assert (grant.bundle_hash, "emergency" in grant.reason) == (before, False)


def test_a_run_in_flight_keeps_what_it_was_granted_and_is_listed(broker: Broker) -> None:
    admitted = admit(broker)
    vic = who(broker, "vic")
    assert broker.reading.impact(vic, None) == (admitted.grant.bundle_hash, ())
    one = approved(broker, without_alice())
    named, runs = broker.reading.impact(vic, one.content_hash)
    assert (named, [(run.run_id, run.account, run.code) for run in runs]) == (
        one.content_hash,
        [(admitted.run_id, "alice", "account.not_mapped")],
    )
    activate(broker, one)
    assert broker.reading.impact(vic, None)[1] == runs
    bundle = broker.tickets.for_run(admitted.run_id, admitted.session, Use.SSH)
    assert bundle.principal == "alice@REALM.TEST"
    assert refused(lambda: admit(broker, 302)).code == "account.not_mapped"


def test_tickets_are_asked_for_services_of_the_policy_in_force_and_of_runs_in_flight(broker: Broker) -> None:
    seal = GrantSeal(Seal(b"s" * 32))
    listed = ListedTargets(broker.active.clusters, broker.ledger, seal, broker.clock)
    every = texts()
    (old,) = {one.login_host for one in broker.active.clusters()}
    new = every["clusters.toml"].replace(old, "login2.realm.test")
    assert (f"host/{old}" in listed, "host/login2.realm.test" in listed) == (True, False)
    admit(broker)
    in_force(broker, every | {"clusters.toml": new})
    assert (f"host/{old}" in listed, "host/login2.realm.test" in listed) == (True, True)
    forged = ListedTargets(broker.active.clusters, broker.ledger, GrantSeal(Seal(b"t" * 32)), broker.clock)
    assert f"host/{old}" not in forged
    broker.clock.shift = timedelta(days=2)
    assert f"host/{old}" not in listed


def test_another_broker_knows_at_once(
    broker: Broker, database: str, signing_key: RSAPrivateKey, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    other = Broker(database, signing_key, tmp_path / "b")
    other.use_texts(texts())
    assert hash_now(other) == hash_now(broker)
    for mark in ("one", "two"):
        in_force(broker, texts(mark))
        assert hash_now(other) == content_hash(texts(mark))
    assert other.admission.admit(other.evidence()).grant.bundle_hash == content_hash(texts("two"))
    emergency(other, texts("three"), minutes=1)
    assert hash_now(broker) == content_hash(texts("three"))
    other.engine.dispose()
