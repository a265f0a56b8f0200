"""Connections are shared by account, made once, retired before their tickets end, and closed when nobody needs them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bridge.cluster.pool import LoginPool
from bridge.errors import Outage
from bridge.model import Cluster, Ticket, TicketBundle

CLUSTER = Cluster("c", "R", "login.c", 22, (), (), "/b", "/c", "FILE:/x", "FILE:/x", ())


class Session:
    """A connection to nowhere."""

    def __init__(self, account: str, bundle: TicketBundle) -> None:
        self.account = account
        self.bundle = bundle
        self.alive = True
        self.pending = 0

    def close(self) -> None:
        self.alive = False


class Site:
    """Makes sessions and counts them."""

    def __init__(self) -> None:
        self.made: list[Session] = []
        self.life = timedelta(minutes=10)
        self.slow = threading.Event()
        self.slow.set()

    def connect(self, _cluster: Cluster, account: str, bundle: TicketBundle) -> Any:
        self.slow.wait(10)
        self.made.append(Session(account, bundle))
        return self.made[-1]

    def tickets(self) -> TicketBundle:
        now = datetime.now(UTC)
        return TicketBundle("a@R", (Ticket("a@R", "host/x@R", now, now + self.life, "0"),), b"")


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def pool(site: Site) -> LoginPool:
    return LoginPool(site.connect, idle_seconds=60)


class Moment:
    """The pool's clock, which a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_runs_of_one_account_share_a_connection(site: Site, pool: LoginPool) -> None:
    leases = [pool.lease(CLUSTER, "alice", site.tickets) for _ in range(3)]
    assert site.made == []
    assert {id(lease.node) for lease in leases} == {id(site.made[0])}
    assert pool.lease(CLUSTER, "bob", site.tickets).node is not leases[0].node
    assert [made.account for made in site.made] == ["alice", "bob"]


def test_many_threads_make_one_connection(site: Site, pool: LoginPool) -> None:
    site.slow.clear()
    nodes: list[object] = []
    threads = [
        threading.Thread(target=lambda: nodes.append(pool.lease(CLUSTER, "alice", site.tickets).node))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    site.slow.set()
    for thread in threads:
        thread.join(10)
    assert len(nodes) == 16
    assert len(site.made) == 1


def test_one_account_that_connects_slowly_does_not_hold_up_another(site: Site) -> None:
    def connect(cluster: Cluster, account: str, bundle: TicketBundle) -> Any:
        if account == "alice":
            return site.connect(cluster, account, bundle)
        return Session(account, bundle)

    pool = LoginPool(connect)
    site.slow.clear()
    waiting = threading.Thread(target=lambda: pool.lease(CLUSTER, "alice", site.tickets).node, daemon=True)
    waiting.start()
    assert pool.lease(CLUSTER, "bob", site.tickets).node
    assert waiting.is_alive()
    site.slow.set()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_dead_connection_is_made_anew(site: Site, pool: LoginPool) -> None:
    lease = pool.lease(CLUSTER, "alice", site.tickets)
    first = lease.node
    site.made[0].alive = False
    assert lease.node is not first
    assert len(site.made) == 2


def test_a_connection_is_retired_before_its_tickets_end_and_closed_when_it_is_done(site: Site, pool: LoginPool) -> None:
    site.life = timedelta(seconds=29)
    lease = pool.lease(CLUSTER, "alice", site.tickets)
    assert lease.node is site.made[0]  # type: ignore[comparison-overlap]
    site.made[0].pending = 1
    site.life = timedelta(minutes=10)
    assert lease.node is site.made[1]  # type: ignore[comparison-overlap]
    assert lease.node is site.made[1]  # type: ignore[comparison-overlap]
    pool.sweep()
    assert site.made[0].alive, "a script still runs on it"
    site.made[0].pending = 0
    pool.sweep()
    assert not site.made[0].alive
    assert site.made[1].alive


def test_an_idle_connection_is_closed_after_a_while_and_a_leased_one_is_not(
    site: Site, pool: LoginPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = Moment()
    monkeypatch.setattr("bridge.cluster.pool.time", moment)
    leases = [pool.lease(CLUSTER, "alice", site.tickets) for _ in range(2)]
    assert leases[0].node is leases[1].node
    leases[0].close()
    leases[0].close()
    moment.now += 61
    pool.sweep()
    assert site.made[0].alive
    leases[1].close()
    moment.now += 59
    pool.sweep()
    assert site.made[0].alive
    moment.now += 2
    pool.sweep()
    assert not site.made[0].alive


def test_an_account_can_be_cut_off_at_once(site: Site, pool: LoginPool) -> None:
    alice, bob = pool.lease(CLUSTER, "alice", site.tickets), pool.lease(CLUSTER, "bob", site.tickets)
    assert alice.node is not bob.node
    pool.disconnect("alice")
    assert [made.alive for made in site.made] == [False, True]


def test_tickets_that_can_not_be_had_leave_nothing_behind(site: Site, pool: LoginPool) -> None:
    def refuse() -> TicketBundle:
        raise Outage("kerberos.kdc_unreachable", "t", "r")

    with pytest.raises(Outage):
        _ = pool.lease(CLUSTER, "alice", refuse).node
    assert pool.lease(CLUSTER, "alice", site.tickets).node is site.made[0]  # type: ignore[comparison-overlap]


def test_a_closed_pool_connects_no_more(site: Site, pool: LoginPool) -> None:
    lease = pool.lease(CLUSTER, "alice", site.tickets)
    assert lease.node
    pool.close()
    assert not site.made[0].alive
    with pytest.raises(Outage, match=r"login\.stopping"):
        _ = lease.node
