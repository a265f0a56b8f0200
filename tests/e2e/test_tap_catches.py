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
from tests.e2e.site_policy import cluster_with, logged_in
from tests.tap import attack, plugin
from tests.tap.watch import Tap

UNSTRIPPED = {"PYTHONPATH": f"{CHECKOUT / 'tests' / 'tap' / 'unstripped'}:{CHECKOUT}"}
TO_WEB = r"broker \d+: socket AF_UNIX"
TO_NODE = r"web \d+: https"
TO_AGENT = r"web \d+: ssh #\d+ as alice channel 0"
ON_LOGIN = r"file of 20001 login:/tmp/"


@pytest.fixture
def unstripped(realm: Realm) -> Iterator[None]:
    """A bridge with an S4U cache for every bundle."""
    usual = next(service for service, _ in realm.services() if service.name == SERVICE.name)
    realm.stop_service(usual.name)
    realm.start_service(replace(usual, env=UNSTRIPPED))
    yield
    realm.stop_service(usual.name)
    realm.start_service(usual)


def _caught(tap: Tap, *ways: str) -> list[str]:
    """Those of the ways on which a TGT was seen."""
    lines = [line for line in tap.look() if "krbtgt" in line]
    return [way for way in ways if any(re.match(way, line) for line in lines)]


@pytest.mark.threat("T20")
@pytest.mark.usefixtures("unstripped")
def test_a_bridge_that_ships_an_s4u_cache_to_a_login_node_is_caught(realm: Realm, alice: Person) -> None:
    with plugin.apart(realm) as tap:
        job = alice.finished(alice.push("echo ran"))
        assert _caught(tap, TO_WEB, TO_AGENT, ON_LOGIN) == [TO_WEB, TO_AGENT], "the agent has looked by itself"
    assert job.status == "failed"


@pytest.mark.threat("T20")
@pytest.mark.usefixtures("unstripped")
def test_a_bridge_that_ships_an_s4u_cache_to_a_compute_node_is_caught(realm: Realm, alice: Person) -> None:
    with cluster_with(realm, login_targets=[]), plugin.apart(realm) as tap:
        job = alice.finished(alice.push("echo ran"))
        assert _caught(tap, TO_WEB, TO_NODE) == [TO_WEB, TO_NODE]
    assert job.status == "failed"
    assert "the bridge sent a bad ticket cache" in alice.log(job), "the node has looked by itself"


@pytest.mark.threat("T20")
def test_a_login_that_lies_on_a_node_is_caught(realm: Realm) -> None:
    with plugin.apart(realm) as tap, logged_in(realm, "alice", "login"):
        assert _caught(tap, ON_LOGIN) == [ON_LOGIN]


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
