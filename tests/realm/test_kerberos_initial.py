"""The bridge's own TGTs against a live KDC: renewed in time, and across every way in which its key changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from bridge_kinds import Kind, made
from bridge_side import LOGIN, bridge_network

from bridge.errors import BridgeError, Outage
from bridge.kerberos import ccache
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.initial import BridgeTicket, InitialTickets
from realm import Realm
from realm.principals import DELEGATION_TARGETS
from realm.topology import KRB_REALM
from tests.fakes import FakeGuard

LIFE = 600
STALE, HALF_GONE = 0.2 * LIFE + 2, 0.5 * LIFE + 2

KIND = Kind("rotating", transition=True, targets=DELEGATION_TARGETS)

Later = Callable[[float], None]


@pytest.fixture
def here(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """The bridge's host, with a principal whose keys these tests change."""
    with made(realm, [KIND]), bridge_network(realm, monkeypatch):
        yield realm


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Moves the clock by which TGTs age; the KDC and libkrb5 keep theirs."""
    real = time.time

    def move(seconds: float) -> None:
        monkeypatch.setattr("bridge.kerberos.initial.time.time", lambda: real() + seconds)

    return move


def rotate(realm: Realm, *, keep_old: bool = False) -> None:
    """Give the principal a new key at the KDC; its keytab stays as it is."""
    realm.kdc.kadmin(f"cpw -randkey {'-keepold' if keep_old else ''} {KIND.service}")


def replace_keytab(realm: Realm) -> None:
    """Put what the KDC has now in place of the keytab, by rename."""
    realm.kdc.ktadd([KIND.service], realm.host("bridge"), KIND.path)


def kvno(realm: Realm) -> int:
    """The number of the key with which the KDC seals tickets for the principal."""
    shown = realm.kdc.kadmin(f"getprinc {KIND.service}")
    return max(int(line.split()[2].rstrip(",")) for line in shown.splitlines() if line.startswith("Key: vno"))


@pytest.mark.parametrize("keep_old", [False, True], ids=["old key removed", "old key kept"])
def test_a_new_key_is_taken_up_without_a_restart(here: Realm, later: Later, *, keep_old: bool) -> None:
    able, number = KIND.impersonation(here), kvno(here)
    able.tickets("alice", 20001, (LOGIN,), LIFE)
    rotate(here, keep_old=keep_old)
    replace_keytab(here)
    assert kvno(here) == number + 1
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)
    later(STALE)
    before = here.log("krb5kdc")
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)
    assert _initial_tickets(here, before) == 1


def test_between_kdc_and_keytab_no_job_is_lost(here: Realm, later: Later) -> None:
    """The new key stands at the KDC, the old one is gone there, and nobody has replaced the keytab yet."""
    able = KIND.impersonation(here)
    able.tickets("alice", 20001, (LOGIN,), LIFE)
    rotate(here)
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)
    later(STALE)
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)
    later(HALF_GONE)
    with pytest.raises(Outage, match=r"kerberos\.bridge_credential"):
        able.tickets("alice", 20001, (LOGIN,), LIFE)
    replace_keytab(here)
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)


@pytest.mark.parametrize(
    "content", [b"", b"\x05", b"\x05\x02", b"\x05\x02\x00\x00\x00\x40half", b"no keytab"], ids=repr
)
def test_a_half_written_keytab_stops_nothing_for_a_while(here: Realm, later: Later, content: bytes) -> None:
    able = KIND.impersonation(here)
    able.tickets("alice", 20001, (LOGIN,), LIFE)
    whole = here.host("bridge").read(KIND.path)
    here.host("bridge").write(KIND.path, content, mode=0o600)
    later(STALE)
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)
    with pytest.raises(Outage, match=r"kerberos\.bridge_credential"):
        KIND.impersonation(here).tickets("alice", 20001, (LOGIN,), LIFE)
    here.host("bridge").write(KIND.path, whole, mode=0o600)
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)


def test_an_error_in_one_job_class_costs_the_others_nothing(here: Realm, later: Later) -> None:
    able = KIND.impersonation(here)
    able.tickets("alice", 20001, (LOGIN,), LIFE)
    rotate(here)
    for _ in range(3):
        with pytest.raises(Outage, match=r"kerberos\.bridge_credential"):
            able.tickets("alice", 20001, (LOGIN,), LIFE + 60)
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)


class SlowToRenew(InitialTickets):
    """Renews only once everybody else has been served with what there was."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self.served: threading.Semaphore | None = None

    def _fetch(self, life_seconds: int) -> BridgeTicket:
        if self.served is not None:
            for _ in range(15):
                assert self.served.acquire(timeout=20), "somebody waited for the renewal"
        return super()._fetch(life_seconds)


def test_many_threads_at_the_moment_of_renewal_ask_once(here: Realm, later: Later) -> None:
    tickets, got = SlowToRenew(KIND.principal, str(KIND.keytab(here))), list[object]()
    first = tickets.get(LIFE)
    tickets.served = threading.Semaphore(0)
    later(STALE)
    before, start = here.log("krb5kdc"), threading.Barrier(16)

    def ask() -> None:
        with here.host("bridge").network():
            start.wait(30)
            got.append(tickets.get(LIFE))
            tickets.served.release()  # type: ignore[union-attr]

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [one is first for one in got] == [True] * 15 + [False]
    assert _initial_tickets(here, before) == 1


def test_every_class_has_a_tgt_of_its_own_and_none_is_renewable(here: Realm) -> None:
    tickets = InitialTickets(KIND.principal, KIND.keytab(here))
    for life in (300, 900, 3600):
        entry = ccache.parse_entry(tickets.get(life).credential)
        assert entry.end_time - entry.start_time == life
        assert entry.renew_till == 0
        assert not entry.flags & 0x00800000
    assert tickets.get(300) is tickets.get(300)


@pytest.fixture
def own_realm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """A realm of one KDC, whose krbtgt may be changed without harm to others."""
    with Realm(parts=("kdc",)) as own, bridge_network(own, monkeypatch), made(own, [KIND]):
        yield own


def test_a_new_key_of_the_realm_itself_is_not_noticed_by_any_job(own_realm: Realm) -> None:
    """krbtgt gets a new key and the old one is removed at once: every TGT of ours is worthless from then on."""
    able = Impersonation(Exchange(KIND.principal, KIND.keytab(own_realm)), KRB_REALM, DELEGATION_TARGETS, FakeGuard())
    able.tickets("alice", 20001, (LOGIN,), LIFE)
    own_realm.kdc.kadmin(f"cpw -randkey krbtgt/{KRB_REALM}")
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)


def test_a_locked_bridge_is_our_outage_and_nobody_elses_refusal(here: Realm, later: Later) -> None:
    able = KIND.impersonation(here)
    here.kdc.modprinc(KIND.service, "-allow_tix")
    with pytest.raises(BridgeError, match=r"kerberos\.bridge_credential"):
        able.tickets("alice", 20001, (LOGIN,), LIFE)
    here.kdc.modprinc(KIND.service, "+allow_tix")
    assert able.tickets("alice", 20001, (LOGIN,), LIFE)


def _initial_tickets(realm: Realm, before: str) -> int:
    lines = realm.log("krb5kdc")[len(before) :].splitlines()
    return sum("AS_REQ" in line and ": ISSUE: " in line and KIND.principal in line for line in lines)
