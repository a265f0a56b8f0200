"""A run's tickets are on the login node on which its stages run, and anew once they end soon."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bench import Broker, Reader, Web

from bridge.broker.listed import targets_of
from bridge.cluster.node import Hello
from bridge.errors import Outage
from bridge.model import Cluster, Grant, Ticket, TicketBundle
from bridge.runs.live_run import LiveRun
from bridge.runs.login_tickets import LoginTickets, Placed
from tests.fakes import FakeCluster, FakeScript

NOW = datetime.now(UTC)
END = NOW + timedelta(hours=3)
BUNDLE = TicketBundle("alice@R", (Ticket("alice@R", "lustre_mds/m@R", NOW, END, "0"),), b"cache")
DOWN = Outage("broker.unreachable", "t", "r")


class Node:
    """A login node that knows its name and takes tickets."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.caches: list[bytes] = []
        self.login_until: datetime | None = None

    def hello(self) -> Hello:
        return Hello("alice", 20001, 21001, self.host, "/")

    def put_tickets(self, _: str, data: bytes) -> datetime | None:
        self.caches.append(data)
        return self.login_until


@pytest.fixture
def tickets(live: LiveRun) -> Callable[..., LoginTickets]:
    def make(**changes: Any) -> LoginTickets:
        grant: Grant = replace(live.run.grant, cluster=replace(live.run.grant.cluster, **changes))
        return LoginTickets(grant, lambda: BUNDLE)

    return make


def test_they_go_where_the_run_goes_and_not_twice(tickets: Callable[..., LoginTickets]) -> None:
    made, one, two = tickets(login_hosts=("two.realm.test",)), Node("one"), Node("two")
    assert made.put(one) == Placed("one", BUNDLE, None)  # type: ignore[arg-type]
    for node in (one, one, two, two):
        made.follow(node)  # type: ignore[arg-type]
    assert (one.caches, two.caches) == ([b"cache"], [b"cache"])
    made.follow(one)  # type: ignore[arg-type]
    assert len(one.caches) == 2, "back on the first node, whose cache may have been removed"


def test_a_process_that_does_not_know_where_they_are_puts_them(tickets: Callable[..., LoginTickets]) -> None:
    node = Node("one")
    tickets(login_hosts=("two.realm.test",)).follow(node)  # type: ignore[arg-type]
    assert node.caches == [b"cache"]


def test_without_targets_nothing_is_asked(tickets: Callable[..., LoginTickets]) -> None:
    node = Node("one")
    tickets(login_hosts=("two.realm.test",), login_targets=()).follow(node)  # type: ignore[arg-type]
    assert node.caches == []


@pytest.mark.parametrize(("hours", "puts"), [(0.0, 1), (1.9, 1), (2.1, 2), (3.5, 2)])
def test_after_a_long_wait_in_the_queue_there_are_fresh_ones(live: LiveRun, hours: float, puts: int) -> None:
    now = [NOW]
    made, node = LoginTickets(live.run.grant, lambda: BUNDLE, clock=lambda: now[0]), Node("one")
    made.put(node)  # type: ignore[arg-type]
    now[0] += timedelta(hours=hours)
    made.follow(node)  # type: ignore[arg-type]
    assert len(node.caches) == puts


@pytest.mark.parametrize(("hours", "fails"), [(2.1, False), (3.1, True)])
def test_a_renewal_that_fails_is_no_matter_while_the_old_ones_are_good(
    live: LiveRun, hours: float, fails: bool
) -> None:
    now, given = [NOW], [BUNDLE]

    def fetch() -> TicketBundle:
        if not given:
            raise DOWN
        return given.pop()

    made, node = LoginTickets(live.run.grant, fetch, clock=lambda: now[0]), Node("one")
    made.put(node)  # type: ignore[arg-type]
    now[0] += timedelta(hours=hours)
    with pytest.raises(Outage) if fails else nullcontext():
        made.follow(node)  # type: ignore[arg-type]
    assert node.caches == [b"cache"]


@pytest.mark.parametrize(("hours", "puts"), [(0.4, 1), (0.6, 2)])
def test_once_the_persons_own_login_has_ended_the_tickets_are_put(live: LiveRun, hours: float, puts: int) -> None:
    now, told = [NOW], list[Placed]()
    made, node = LoginTickets(live.run.grant, lambda: BUNDLE, told.append, lambda: now[0]), Node("one")
    node.login_until = NOW + timedelta(minutes=30)
    placed = made.put(node)  # type: ignore[arg-type]
    assert placed is not None
    assert placed.end == node.login_until
    node.login_until = None
    now[0] += timedelta(hours=hours)
    made.follow(node)  # type: ignore[arg-type]
    assert len(node.caches) == puts
    assert told == [placed]


def test_a_login_that_was_left_is_on_record_and_said_once(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.login_until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    reader = Reader(web.runs.start_stage(live, "1" * 32, "prepare", b""))
    assert reader.end()["outcome"] == "ok"
    assert any("Your own login on login.realm.test stays" in note for note in reader.notes)
    assert not any("lustre_mds" in note for note in reader.notes)
    cluster.scripts.append(FakeScript())
    assert Reader(web.runs.start_stage(live, "2" * 32, "get_sources", b"true")).end()["outcome"] == "ok"
    web.runs.finish(live)
    events = broker.records(type="run", phase="event")
    until = f"{cluster.login_until:%Y-%m-%dT%H:%M:%SZ}"
    assert [one["detail"] for one in events] == [{"login_node": "login.realm.test", "own_login_until": until}]
    assert broker.records(type="run", phase="ok")[-1]["detail"]["login_left"] is True


def test_scripts_on_the_login_node_are_told_where_their_tickets_are(
    web: Web, cluster: FakeCluster, live: LiveRun
) -> None:
    cluster.scripts.append(FakeScript())
    Reader(web.runs.start_stage(live, "2" * 32, "get_sources", b"true")).end()
    (environment,) = cluster.environments
    assert environment["KRB5CCNAME"] in cluster.files
    assert environment["KRB5CCNAME"].startswith("FILE:/")


def test_a_stage_on_one_login_node_asks_for_no_further_tickets(web: Web, cluster: FakeCluster, live: LiveRun) -> None:
    Reader(web.runs.start_stage(live, "1" * 32, "prepare", b"")).end()
    cluster.scripts.append(FakeScript())
    assert Reader(web.runs.start_stage(live, "2" * 32, "get_sources", b"true")).end()["outcome"] == "ok"
    assert len(cluster.called("put_tickets")) == 1


def test_the_broker_lists_every_login_node(live: LiveRun) -> None:
    cluster: Cluster = replace(live.run.grant.cluster, login_hosts=("two.realm.test",))
    assert {f"host/{cluster.login_host}", "host/two.realm.test"} <= targets_of(cluster)
