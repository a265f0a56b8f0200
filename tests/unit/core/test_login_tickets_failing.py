"""A run whose tickets can't be had goes on only where good ones of its own are there already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_runs_login_tickets import BUNDLE, DOWN, NOW, Node

from bridge.errors import Outage
from bridge.model import TicketBundle
from bridge.runs.live import LiveRun
from bridge.runs.login_tickets import LoginTickets


def _down() -> TicketBundle:
    raise DOWN


@pytest.mark.parametrize("hosts", [(), ("two.realm.test",)])
def test_who_does_not_know_of_any_there_does_not_begin_a_stage(live: LiveRun, hosts: tuple[str, ...]) -> None:
    grant = replace(live.run.grant, cluster=replace(live.run.grant.cluster, login_hosts=hosts))
    node = Node("one")
    with pytest.raises(Outage):
        LoginTickets(grant, _down, lambda: NOW).follow(node)  # type: ignore[arg-type]
    assert node.caches == []


def test_on_another_node_those_of_the_first_are_of_no_use(live: LiveRun) -> None:
    grant = replace(live.run.grant, cluster=replace(live.run.grant.cluster, login_hosts=("two.realm.test",)))
    given = [BUNDLE]
    made = LoginTickets(grant, lambda: given.pop() if given else _down(), lambda: NOW)
    one, two = Node("one"), Node("two")
    made.put(one)  # type: ignore[arg-type]
    made.follow(one)  # type: ignore[arg-type]
    with pytest.raises(Outage):
        made.follow(two)  # type: ignore[arg-type]
    assert (len(one.caches), two.caches) == (1, [])
