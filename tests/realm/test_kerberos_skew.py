"""A clock that is minutes off, on the bridge or at the KDC: named as what it is, and no job is admitted meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from bridge_kinds import Kind, made
from bridge_side import LOGIN, PRINCIPAL, REALM_NAME, bridge_network

from bridge.errors import Outage
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from realm import Realm
from realm.kdc import KRB5KDC
from realm.principals import BRIDGE_KEYTAB, DELEGATION_TARGETS
from tests.fakes import FakeGuard

KIND = Kind("skewed", transition=True, targets=DELEGATION_TARGETS)

_CHILD = f"""
import sys, time
from bridge.broker.selftest import Expectations, SelfTest
from bridge.db.ledger import SqlLedger
from bridge.db.engine import open_database
from bridge.db.migrate import upgrade
from bridge.audit.log import Writer
from bridge.errors import BridgeError
from bridge.kerberos.clock import kdc_ahead_seconds
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.probe import probing
from tests.fakes import FakeGuard
principal, keytab = "{KIND.principal}", "{KIND.path}"
able = Impersonation(Exchange(principal, keytab), "{REALM_NAME}", ["{LOGIN}"], FakeGuard())
try:
    print("tickets", able.tickets("alice", 20001, ["{LOGIN}"], 600).principal)
except BridgeError as error:
    print("tickets", error.code, error.status, error.retryable)
engine = open_database("sqlite:////var/lib/realm/skewed.sqlite3")
upgrade(engine)
expected = Expectations(["{LOGIN}@{REALM_NAME}"], ["krbtgt/{REALM_NAME}@{REALM_NAME}"], ["root@{REALM_NAME}"])
test = SelfTest(lambda: probing(principal, keytab), lambda: kdc_ahead_seconds(principal, keytab), lambda: expected,
                SqlLedger(engine, Writer.new("broker@test")))
try:
    test.ready()
    print("ready")
except BridgeError as error:
    print("not ready", error.code)
"""


@pytest.fixture
def here(realm: Realm) -> Iterator[Realm]:
    """A realm that has the principal of these tests."""
    with made(realm, [KIND]):
        yield realm


def run(here: Realm, moved: str) -> list[str]:
    """What the bridge's code says on the bridge's host, in a process whose clock is moved so."""
    argv = [sys.executable, "-P", "-c", _CHILD]
    if moved:
        argv = ["/usr/bin/faketime", "-m", "-f", moved, *argv]
    host = here.host("bridge")
    try:
        done = host.run(argv, env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"}, cwd=str(here.directory.parent.parent))
    finally:
        for end in ("", "-shm", "-wal"):
            host.path(f"/var/lib/realm/skewed.sqlite3{end}").unlink(missing_ok=True)
    return done.stdout.decode().splitlines()


@pytest.mark.threat("T25")
@pytest.mark.parametrize("moved", ["+6m", "-6m", "+30m", "-1d"])
def test_minutes_of_difference_stop_tickets_and_readiness(here: Realm, moved: str) -> None:
    tickets, ready = run(here, moved)
    assert tickets == "tickets kerberos.clock_skew 503 True"
    assert ready in ("not ready selftest.clock_skew", "not ready kerberos.clock_skew")


@pytest.mark.threat("T25")
@pytest.mark.parametrize("moved", ["+2m", "-2m"])
def test_what_kerberos_bears_is_still_too_much_to_be_ready(here: Realm, moved: str) -> None:
    _, ready = run(here, moved)
    assert ready == "not ready selftest.clock_skew"


@pytest.mark.threat("T25")
@pytest.mark.parametrize("moved", ["", "+20s", "-20s"])
def test_seconds_of_difference_stop_nothing(here: Realm, moved: str) -> None:
    assert run(here, moved) == ["tickets alice@REALM.TEST", "ready"]


@pytest.mark.threat("T25")
@pytest.mark.parametrize("moved", ["+6m", "-6m"])
def test_a_kdc_with_the_wrong_time_is_told_apart_from_one_that_is_down(
    monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    with Realm(parts=("kdc",)) as own, bridge_network(own, monkeypatch):
        able = Impersonation(
            Exchange(PRINCIPAL, str(own.host("bridge").path(BRIDGE_KEYTAB))), REALM_NAME, [LOGIN], FakeGuard()
        )
        assert able.tickets("alice", 20001, [LOGIN], 600)
        own.stop_service("krb5kdc")
        own.start_service(replace(KRB5KDC, argv=("/usr/bin/faketime", "-f", moved, *KRB5KDC.argv)))
        with pytest.raises(Outage, match=r"kerberos\.clock_skew"):
            able.tickets("alice", 20001, [LOGIN], 600)
        own.stop_service("krb5kdc")
        own.start_service(KRB5KDC)
        assert able.tickets("alice", 20001, [LOGIN], 600)
