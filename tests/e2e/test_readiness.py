"""The live bridge on a realm that changes under it: it says that it is not ready, and why, and gives no ticket."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from realm import Realm, tls
from realm.bridgehost import SERVICE, URL, ci_bridge
from realm.principals import BRIDGE, BRIDGE_HTTP, DELEGATION_TARGETS
from realm.service import answers
from tests.e2e.person import Person

LONGEST_WAIT_SECONDS = 40.0
"""More than a bad result is kept, so that also a word that gets lost is made good."""

LIVE = replace(SERVICE, ready=answers("curl", "--silent", "--cacert", tls.CA_PATH, f"{URL}/health/live", expect="live"))


def readiness(realm: Realm) -> tuple[int, str, str]:
    """What anybody may ask: the status, the code or ``ready``, and the sentence."""
    argv = ["curl", "--silent", "--cacert", tls.CA_PATH, "--write-out", "\n%{http_code}", f"{URL}/health/ready"]
    body, _, status = realm.host("bridge").run(argv, check=False).stdout.decode().rpartition("\n")
    answer: dict[str, Any] = json.loads(body or "{}")
    return int(status), answer.get("code", answer.get("status", "")), answer.get("title", "")


def becomes(realm: Realm, code: str) -> tuple[int, str, str]:
    """Wait until readiness says so, with a bound."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while (found := readiness(realm))[1] != code:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def reload(realm: Realm) -> None:
    """As ``systemctl reload ci-bridge-broker`` does."""
    listing = realm.host("bridge").run(["ps", "-eo", "pid,args"]).stdout.decode()
    broker = re.search(r"^ *(\d+) .*bridge\.cli\.main broker --listen-fd", listing, re.MULTILINE)
    assert broker
    realm.host("bridge").run(["kill", "-HUP", broker[1]])


def doctor(realm: Realm) -> set[tuple[str, str]]:
    """What ``ci-bridge doctor kerberos`` finds wrong: which check, of what."""
    words = ("doctor", "kerberos", "--json")
    found = json.loads(ci_bridge(realm, *words, user="ci-bridge-broker", check=False))["sections"]["kerberos"]
    return {(one["check"], one["subject"].partition("@")[0]) for one in found if one["state"] == "failed"}


def impersonated(realm: Realm) -> int:
    """How often the KDC was asked for a ticket in a person's name."""
    return realm.log("krb5kdc").count("PROTOCOL-TRANSITION s4u-client=alice@")


@contextmanager
def _wrong_at_the_kdc(realm: Realm, name: str) -> Iterator[None]:
    try:
        if name == "root":
            realm.kdc.modprinc("root", "+allow_forwardable")
        else:
            realm.kdc.set_delegation_targets(BRIDGE, (*DELEGATION_TARGETS, name))
        yield
    finally:
        realm.kdc.modprinc("root", "-allow_forwardable")
        realm.kdc.set_delegation_targets(BRIDGE, DELEGATION_TARGETS)


@pytest.fixture
def told(realm: Realm) -> Iterator[Callable[[], None]]:
    """Tells the bridge to look again; at the end it is ready as before."""
    try:
        yield lambda: reload(realm)
    finally:
        reload(realm)
        becomes(realm, "ready")


@pytest.mark.threat("T22")
def test_a_kdc_that_gives_too_much_makes_the_bridge_unready_and_nobody_gets_a_ticket(
    realm: Realm, alice: Person, told: Callable[[], None]
) -> None:
    assert readiness(realm)[:2] == (200, "ready")
    with _wrong_at_the_kdc(realm, BRIDGE_HTTP):
        told()
        status, _, title = becomes(realm, "selftest.too_much")
        assert (status, title) == (500, "The KDC would give the bridge tickets that it must never have.")
        assert ("delegation-list", BRIDGE_HTTP) in doctor(realm)

        before = impersonated(realm)
        job = alice.finished(alice.push("echo ran"))
        assert (job.status, job.failure_reason) == ("failed", "runner_system_failure")
        assert "selftest.too_much" in alice.log(job)
        assert impersonated(realm) == before
    told()
    becomes(realm, "ready")
    assert alice.finished(alice.push("echo ran")).status == "success"
    assert impersonated(realm) > before


@pytest.mark.threat("T22")
def test_a_bridge_that_starts_where_root_can_be_impersonated_is_not_ready(realm: Realm) -> None:
    try:
        with _wrong_at_the_kdc(realm, "root"):
            realm.stop_service("bridge")
            realm.start_service(LIVE)
            assert becomes(realm, "selftest.too_much")[0] == 500
            assert ("never-impersonated", "root") in doctor(realm)
        reload(realm)
        becomes(realm, "ready")
    finally:
        realm.stop_service("bridge")
        realm.start_service(SERVICE)


@pytest.mark.threat("T24")
def test_a_kdc_that_is_away_is_told_and_found_again(realm: Realm, told: Callable[[], None]) -> None:
    realm.stop_service("krb5kdc")
    try:
        told()
        status, _, title = becomes(realm, "kerberos.kdc_unreachable")
        assert status == 503
        assert title
    finally:
        realm.restart_service("krb5kdc")
    becomes(realm, "ready")


def test_without_its_broker_web_is_not_ready(realm: Realm) -> None:
    host, socket = realm.host("bridge"), "/run/ci-bridge/broker.sock"
    host.run(["mv", socket, f"{socket}.away"])
    try:
        status, _, title = becomes(realm, "broker.unreachable")
        assert (status, title) == (503, "The bridge's broker does not answer.")
        live = host.run(["curl", "--silent", "--cacert", tls.CA_PATH, f"{URL}/health/live"])
        assert json.loads(live.stdout) == {"status": "live"}
    finally:
        host.run(["mv", f"{socket}.away", socket])
    becomes(realm, "ready")
