"""A run whose tickets can't be had goes on only where good ones of its own are there already."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from test_runs_login_tickets import BUNDLE, DOWN, END, NOW, Node

from bridge.errors import Outage
from bridge.model import TicketBundle
from bridge.runs.live_run import LiveRun
from bridge.runs.login_tickets import LoginTickets, Placed


def _until(end: datetime) -> TicketBundle:
    return replace(BUNDLE, tickets=(replace(BUNDLE.tickets[0], end=end),))


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


def test_none_are_put_on_a_node_where_the_stage_is_not(live: LiveRun) -> None:
    now = [NOW]
    made, one, two = LoginTickets(live.run.grant, lambda: BUNDLE, clock=lambda: now[0]), Node("one"), Node("two")
    made.put(one)  # type: ignore[arg-type]
    now[0] += timedelta(hours=2.5)
    with pytest.raises(Outage, match=r"login\.elsewhere"):
        made.renew(two)  # type: ignore[arg-type]
    made.renew(one)  # type: ignore[arg-type]
    assert (len(one.caches), two.caches) == (2, [])


def test_two_who_renew_at_once_make_one_renewal(live: LiveRun) -> None:
    now, fetched, second = [NOW], [0], threading.Event()

    def fetch() -> TicketBundle:
        fetched[0] += 1
        if fetched[0] == 2:
            second.wait(0.3)  # the time for somebody else to come here too
        elif fetched[0] > 2:
            second.set()
        return _until(now[0] + timedelta(hours=3))

    made, node = LoginTickets(live.run.grant, fetch, clock=lambda: now[0]), Node("one")
    made.put(node)  # type: ignore[arg-type]
    now[0] += timedelta(hours=2.5)
    threads = [threading.Thread(target=act, args=(node,)) for act in (made.renew, made.follow, made.renew)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (fetched, len(node.caches)) == ([2], 2)


def test_a_login_that_could_not_be_put_on_record_is_told_of_at_the_next_try(live: LiveRun) -> None:
    told: list[Placed] = []

    def record(placed: Placed) -> None:
        told.append(placed)
        if len(told) == 1:
            raise Outage("db.unreachable", "t", "r")

    made, node = LoginTickets(live.run.grant, lambda: BUNDLE, record), Node("one")
    node.login_until = END
    with pytest.raises(Outage):
        made.put(node)  # type: ignore[arg-type]
    made.follow(node)  # type: ignore[arg-type]
    made.follow(node)  # type: ignore[arg-type]
    assert len(told) == 2
