"""A run's tickets are on the login node on which its stages run, and are put there once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from bench import Reader, Web

from bridge.broker.listed import targets_of
from bridge.cluster.node import Hello
from bridge.model import Cluster, Grant, Ticket, TicketBundle
from bridge.runs.live import LiveRun
from bridge.runs.login_tickets import LoginTickets
from tests.fakes import FakeCluster, FakeScript

NOW = datetime.now(UTC)
BUNDLE = TicketBundle("alice@R", (Ticket("alice@R", "lustre_mds/m@R", NOW, NOW, "0"),), b"cache")


class Node:
    """A login node that knows its name and takes tickets."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.caches: list[bytes] = []

    def hello(self) -> Hello:
        return Hello("alice", 20001, 21001, self.host, "/")

    def put_tickets(self, _: str, data: bytes) -> None:
        self.caches.append(data)


@pytest.fixture
def tickets(live: LiveRun) -> Callable[..., LoginTickets]:
    def make(**changes: Any) -> LoginTickets:
        grant: Grant = replace(live.run.grant, cluster=replace(live.run.grant.cluster, **changes))
        return LoginTickets(grant, lambda: BUNDLE)

    return make


def test_they_go_where_the_run_goes_and_not_twice(tickets: Callable[..., LoginTickets]) -> None:
    made, one, two = tickets(login_hosts=("two.realm.test",)), Node("one"), Node("two")
    assert made.put(one) is BUNDLE  # type: ignore[arg-type]
    for node in (one, one, two, two):
        made.follow(node)  # type: ignore[arg-type]
    assert (one.caches, two.caches) == ([b"cache"], [b"cache"])
    made.follow(one)  # type: ignore[arg-type]
    assert len(one.caches) == 2, "back on the first node, whose cache may have been removed"


def test_a_process_that_does_not_know_where_they_are_puts_them(tickets: Callable[..., LoginTickets]) -> None:
    node = Node("one")
    tickets(login_hosts=("two.realm.test",)).follow(node)  # type: ignore[arg-type]
    assert node.caches == [b"cache"]


@pytest.mark.parametrize("changes", [{}, {"login_hosts": ("two.realm.test",), "login_targets": ()}])
def test_with_one_node_or_no_targets_nothing_is_asked(
    tickets: Callable[..., LoginTickets], changes: dict[str, Any]
) -> None:
    node = Node("one")
    tickets(**changes).follow(node)  # type: ignore[arg-type]
    assert node.caches == []


def test_a_stage_on_one_login_node_asks_for_no_further_tickets(web: Web, cluster: FakeCluster, live: LiveRun) -> None:
    Reader(web.runs.start_stage(live, "1" * 32, "prepare", b"")).end()
    cluster.scripts.append(FakeScript())
    assert Reader(web.runs.start_stage(live, "2" * 32, "get_sources", b"true")).end()["outcome"] == "ok"
    assert len(cluster.called("put_tickets")) == 1


def test_the_broker_lists_every_login_node(live: LiveRun) -> None:
    cluster: Cluster = replace(live.run.grant.cluster, login_hosts=("two.realm.test",))
    assert {f"host/{cluster.login_host}", "host/two.realm.test"} <= targets_of(cluster)
