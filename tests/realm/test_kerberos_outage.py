"""KDCs that are away, in every way in which one can be: a short outage, never a hang, and over by itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_kinds import Kind, made
from bridge_side import LOGIN, PRINCIPAL, REALM_NAME, bridge_network
from dead_kdcs import BOUND_SECONDS, KINDS, LIVING, dead_kdc, write_conf

from bridge.errors import BridgeError
from bridge.kerberos.breaker import Breaker
from bridge.kerberos.deadline import Deadline
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.kdcs import KdcOrder
from realm import Realm
from realm.principals import BRIDGE_KEYTAB, DELEGATION_TARGETS
from tests.fakes import FakeGuard

UNREACHABLE = "kerberos.kdc_unreachable"
HEAL_SECONDS = 30.0

MANY = tuple(f"lustre_mds/many{number:02}.realm.test" for number in range(24))
WIDE = Kind("wide", transition=True, targets=(LOGIN, *MANY))


@pytest.fixture
def here(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """The bridge's host."""
    with bridge_network(realm, monkeypatch):
        yield realm


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A krb5.conf of this test's own, which libkrb5 reads."""
    file = tmp_path / "krb5.conf"
    monkeypatch.setenv("KRB5_CONFIG", str(file))
    return file


def ordered(here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kdcs: tuple[str, ...]) -> KdcOrder:
    """The broker's own order of these KDCs, before the realm's krb5.conf."""
    order = KdcOrder(PRINCIPAL, kdcs, tmp_path / "order.conf")
    monkeypatch.setenv("KRB5_CONFIG", f"{tmp_path / 'order.conf'}:{here.krb5_conf}")
    return order


def bridge(
    here: Realm, order: KdcOrder | None = None, breaker: Breaker | None = None, deadline: Deadline | None = None
) -> Impersonation:
    """The bridge's code as in the broker."""
    keytab = str(here.host("bridge").path(BRIDGE_KEYTAB))
    exchange = Exchange(PRINCIPAL, keytab, order=order, breaker=breaker, deadline=deadline)
    return Impersonation(exchange, REALM_NAME, DELEGATION_TARGETS, FakeGuard())


def code(able: Impersonation) -> str | None:
    """What a request comes to."""
    try:
        able.tickets("alice", 20001, (LOGIN,), 600)
    except BridgeError as error:
        return error.code
    return None


@pytest.mark.threat("T24")
@pytest.mark.parametrize("kind", KINDS)
def test_a_realm_of_dead_kdcs_never_holds_a_job_for_more_than_five_seconds(here: Realm, conf: Path, kind: str) -> None:
    with dead_kdc(here, kind) as dead:
        write_conf(conf, [dead])
        able, began = bridge(here), time.monotonic()
        assert code(able) == UNREACHABLE
        assert time.monotonic() - began < BOUND_SECONDS


@pytest.mark.threat("T24")
@pytest.mark.parametrize("kind", KINDS)
def test_with_an_order_of_dead_kdcs_it_is_no_longer(
    here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with dead_kdc(here, kind) as dead, dead_kdc(here, kind) as other:
        able = bridge(here, ordered(here, tmp_path, monkeypatch, (dead, other)))
        began = time.monotonic()
        assert code(able) == UNREACHABLE
        assert time.monotonic() - began < BOUND_SECONDS


@pytest.mark.threat("T24")
@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_first_kdc_loses_no_job(here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with dead_kdc(here, kind) as dead:
        order = ordered(here, tmp_path, monkeypatch, (dead, LIVING))
        able, began = bridge(here, order), time.monotonic()
        assert code(able) is None
        assert time.monotonic() - began < BOUND_SECONDS
        if kind not in ("refuses", "hangs up"):
            _until(lambda: order.first == LIVING)
            assert min(_seconds(able) for _ in range(5)) < 1, "each is asked of the dead one first"


@pytest.mark.threat("T24")
def test_a_dead_first_kdc_loses_no_wide_bundle_either(
    here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty-four services: libkrb5 by itself would wait a second for each."""
    services = dict.fromkeys(MANY, ("-requires_preauth",))
    with made(here, [WIDE], services), dead_kdc(here, "takes no connection") as dead:
        order = ordered(here, tmp_path, monkeypatch, (dead, LIVING))
        exchange = Exchange(WIDE.principal, WIDE.keytab(here), order=order)
        able, began = Impersonation(exchange, REALM_NAME, MANY, FakeGuard()), time.monotonic()
        assert len(able.tickets("alice", 20001, MANY, 600).tickets) == len(MANY)
        assert time.monotonic() - began < BOUND_SECONDS


@pytest.mark.threat("T24")
def test_an_idle_bridge_finds_the_kdc_that_answers_by_its_self_test(
    here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dead_kdc(here, "says nothing") as dead:
        order = ordered(here, tmp_path, monkeypatch, (dead, LIVING))
        keytab = str(here.host("bridge").path(BRIDGE_KEYTAB))
        assert abs(Exchange(PRINCIPAL, keytab, order=order).kdc_ahead_seconds()) < 2
        assert order.first == LIVING


@pytest.mark.threat("T24")
def test_many_jobs_at_once_survive_a_first_kdc_that_says_nothing(
    here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More callers than slots: those that are stuck at the dead KDC do not keep the others from the living one."""
    with dead_kdc(here, "says nothing") as dead:
        order = ordered(here, tmp_path, monkeypatch, (dead, LIVING))
        able, codes = bridge(here, order, deadline=Deadline(slots=4)), list[str | None]()

        def ask() -> None:
            with here.host("bridge").network():
                codes.append(code(able))

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(codes) == 12
        assert codes.count(None) >= 4
        began = time.monotonic()
        while code(able) is not None:
            assert time.monotonic() - began < HEAL_SECONDS
        assert order.first == LIVING


@pytest.mark.threat("T24")
def test_while_no_kdc_answers_callers_are_refused_at_once_and_few_threads_wait(here: Realm, conf: Path) -> None:
    with dead_kdc(here, "says nothing") as dead:
        write_conf(conf, [dead])
        able, before = bridge(here, breaker=Breaker(pause_seconds=60), deadline=Deadline(seconds=0.3)), _callers()
        assert [code(able) for _ in range(3)] == [UNREACHABLE] * 3
        stuck = _callers() - before
        assert [code(able) for _ in range(100)] == [UNREACHABLE] * 100
        assert _callers() - before == stuck
        assert len(stuck) <= 3


@pytest.mark.threat("T24")
def test_one_caller_at_a_time_tries_whether_a_kdc_is_back(here: Realm, conf: Path) -> None:
    with dead_kdc(here, "says nothing") as dead:
        write_conf(conf, [dead])
        breaker, gate, took = Breaker(pause_seconds=0.0), threading.Barrier(16), list[float]()
        quick = bridge(here, breaker=breaker, deadline=Deadline(seconds=0.3))
        assert [code(quick) for _ in range(3)] == [UNREACHABLE] * 3
        able = bridge(here, breaker=breaker, deadline=Deadline(seconds=4.0))

        def ask() -> None:
            with here.host("bridge").network():
                gate.wait(30)
                began = time.monotonic()
                assert code(able) == UNREACHABLE
                took.append(time.monotonic() - began)

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(took) == 16
        assert sum(seconds > 3.5 for seconds in took) == 1


@pytest.mark.threat("T24")
def test_a_kdc_that_hangs_and_wakes_is_used_again_soon(here: Realm) -> None:
    """With every slot held by calls that are stuck in libkrb5."""
    able, codes = bridge(here, deadline=Deadline(seconds=1.0, slots=4)), list[str | None]()
    assert code(able) is None

    def ask() -> None:
        with here.host("bridge").network():
            codes.append(code(able))

    with _stopped_kdc(here):
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert codes == [UNREACHABLE] * 8
    began = time.monotonic()
    while code(able) is not None:
        assert time.monotonic() - began < HEAL_SECONDS


@pytest.mark.threat("T24")
def test_a_kdc_that_was_stopped_is_used_again_the_moment_it_is_back(here: Realm) -> None:
    """Connections that are refused hold nobody, so they open no breaker that would outlast the outage."""
    # One that takes long counts as silent, and a machine under load may take long over one or two of them.
    able = bridge(here, breaker=Breaker(silences=5, pause_seconds=60))
    here.stop_service("krb5kdc")
    try:
        assert [code(able) for _ in range(9)] == [UNREACHABLE] * 9
    finally:
        here.restart_service("krb5kdc")
    assert code(able) is None


@pytest.mark.threat("T24")
def test_a_refusal_does_not_count_as_silence(here: Realm) -> None:
    able = bridge(here, breaker=Breaker(silences=1, pause_seconds=60), deadline=Deadline(seconds=30))
    for _ in range(3):
        with pytest.raises(BridgeError, match=r"kerberos\.client_revoked"):
            able.tickets("carol", 20001, (LOGIN,), 600)
    assert code(able) is None


class _stopped_kdc:  # noqa: N801 - reads as what it is: a state, for the length of a block
    """The KDC's process is stopped: its port takes connections, and nobody answers."""

    def __init__(self, realm: Realm) -> None:
        self._realm = realm

    def __enter__(self) -> None:
        self._signal("STOP")

    def __exit__(self, *_: object) -> None:
        self._signal("CONT")

    def _signal(self, name: str) -> None:
        self._realm.host("kdc").run(["/usr/bin/pkill", f"-{name}", "-x", "krb5kdc"])
        for service, pid in self._realm.services():
            # nsenter, which the realm starts services with, stops together with its child and has to be told to go on.
            if name == "CONT" and service.name == "krb5kdc" and pid is not None:
                os.kill(pid, signal.SIGCONT)


def _seconds(able: Impersonation) -> float:
    """How long a request takes that must be granted."""
    began = time.monotonic()
    assert code(able) is None
    return time.monotonic() - began


def _callers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "krb5-call"}


def _until(condition: object) -> None:
    began = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert time.monotonic() - began < HEAL_SECONDS
        threading.Event().wait(0.02)
