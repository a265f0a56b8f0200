"""The tap is on: it sees what a working bridge delivers, and a bridge that ships what it must not is caught by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from realm import Realm
from realm.bridgehost import SERVICE
from realm.workspace import CHECKOUT
from tests.e2e.person import Person
from tests.tap import attack, plugin

UNSTRIPPED = {"PYTHONPATH": f"{CHECKOUT / 'tests' / 'tap' / 'unstripped'}:{CHECKOUT}"}
KINDS = {
    "the broker to web": r"broker \d+: socket AF_UNIX",
    "web to a node": r"web \d+: https",
    "web to a login agent": r"web \d+: ssh #\d+ as alice channel 0",
    "the login node's disk": r"file of 20001 login:/tmp/",
}


@pytest.fixture
def unstripped(realm: Realm) -> Iterator[None]:
    """A bridge with an S4U cache for every bundle."""
    usual = next(service for service, _ in realm.services() if service.name == SERVICE.name)
    realm.stop_service(usual.name)
    realm.start_service(replace(usual, env=UNSTRIPPED))
    yield
    realm.stop_service(usual.name)
    realm.start_service(usual)


@pytest.mark.threat("T20")
def test_a_bridge_that_ships_an_s4u_cache_is_caught_on_every_way_out(
    realm: Realm, alice: Person, unstripped: None
) -> None:
    with plugin.apart(realm) as tap:
        job = alice.finished(alice.push("echo ran"))
        lines = tap.look()
    caught = [line for line in lines if "krbtgt" in line]
    assert {name for name, pattern in KINDS.items() if any(re.match(pattern, line) for line in caught)} == set(KINDS)
    assert job.status == "failed"
    assert "the bridge sent a bad ticket cache" in alice.log(job), "the node has looked by itself"


@pytest.mark.threat("T20")
def test_what_a_job_is_delivered_is_seen_on_every_way_and_is_of_no_use_to_a_thief(realm: Realm, alice: Person) -> None:
    with plugin.apart(realm) as tap:
        assert alice.finished(alice.push("echo ran")).status == "success"
        assert tap.look() == []
        assert tap.missing() == []
    assert {"socket", "https", "ssh", "login"} <= set(tap.seen)
    assert {"node1", "node2"} & set(tap.seen)
    assert set(tap.loot) == {"alice@REALM.TEST"}
    assert attack.successes(realm, tap.loot["alice@REALM.TEST"].values()) == []


def test_a_tap_that_is_off_is_no_proof(realm: Realm, alice: Person) -> None:
    with plugin.apart(realm) as tap:
        assert alice.finished(alice.push("echo ran")).status == "success"
        assert any("0 of them seen" in line for line in tap.missing())
