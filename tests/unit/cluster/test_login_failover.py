"""A login node that can't be used is gone around and left alone for a while; one that lies is not gone around."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bridge.cluster import opening
from bridge.cluster.node import Hello
from bridge.cluster.opening import LoginOpener
from bridge.cluster.rota import REST_SECONDS, Rota
from bridge.errors import BridgeError, Defect, Outage, PolicyRefused
from bridge.model import Cluster, Ticket, TicketBundle

CLUSTER = Cluster("c", "R", "one.c", 22, (), (), "/b", "/c", "FILE:/x", "FILE:/x", (), (), ("two.c", "three.c"))
END = datetime.now(UTC) + timedelta(hours=1)
BUNDLE = TicketBundle("alice@R", (Ticket("alice@R", "host/one.c@R", END, END, "0"),), b"")

DOWN = Outage("ssh.unreachable", "t", "r")
NO = PolicyRefused("ssh.refused", "t", "r")
FOREIGN = Defect("ssh.host_key", "t", "r")


class Site:
    """Login nodes, some of which fail, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.tried: list[str] = []
        self.connecting: dict[str, BridgeError] = {}
        self.agent: dict[str, BridgeError] = {}
        self.open = LoginOpener(
            lambda _: nullcontext(None),  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            rota=Rota(clock=lambda: self.now),
        )
        monkeypatch.setattr(opening, "connect", self._connect)
        monkeypatch.setattr(opening, "AgentConnection", lambda pipe, **_: pipe)
        monkeypatch.setattr(opening, "LoginSession", lambda pipe: pipe)

    def _connect(self, endpoint: Any, account: str, *_: Any) -> Any:
        self.tried.append(endpoint.host)
        if error := self.connecting.get(endpoint.host):
            raise error
        return Node(endpoint.host, account, self.agent.get(endpoint.host))

    def hosts(self, account: str = "alice") -> list[str]:
        """The hosts that are tried now, in order."""
        self.tried.clear()
        self.open(CLUSTER, account, BUNDLE)
        return list(self.tried)


class Node:
    """A connection, its pipe and its session in one."""

    def __init__(self, host: str, account: str, error: BridgeError | None) -> None:
        self._hello = Hello(account, 20001, 20001, host, "/")
        self._error = error
        self.closed = False

    def run(self, _: str) -> Node:
        return self

    def hello(self) -> Hello:
        if self._error:
            raise self._error
        return self._hello

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def test_the_first_node_is_used_as_long_as_it_can_be(site: Site) -> None:
    assert [site.hosts(), site.hosts(), site.hosts("bob")] == [["one.c"]] * 3


@pytest.mark.parametrize("where", ["connecting", "agent"])
@pytest.mark.parametrize("code", ["ssh.unreachable", "ssh.timeout", "ssh.kerberos", "login.connection_lost"])
def test_a_node_that_is_away_is_gone_around_and_rests_for_all(site: Site, where: str, code: str) -> None:
    getattr(site, where)["one.c"] = Outage(code, "t", "r")
    assert site.hosts() == ["one.c", "two.c"]
    assert [site.hosts(), site.hosts("bob")] == [["two.c"]] * 2
    site.now = REST_SECONDS + 1
    assert site.hosts("carol") == ["one.c", "two.c"]


def test_an_account_stays_where_it_is_when_the_first_node_is_back(site: Site) -> None:
    site.connecting["one.c"] = DOWN
    assert site.hosts() == ["one.c", "two.c"]
    site.connecting.clear()
    site.now = REST_SECONDS + 1
    assert site.hosts() == ["two.c"]
    assert site.hosts("bob") == ["one.c"]
    site.connecting["two.c"] = DOWN
    assert site.hosts() == ["two.c", "one.c"]


@pytest.mark.threat("T33")
def test_a_refused_account_takes_the_node_from_nobody_else(site: Site) -> None:
    site.connecting["one.c"] = NO
    assert site.hosts("mallory") == ["one.c", "two.c"]
    site.connecting.clear()
    assert site.hosts("alice") == ["one.c"]
    assert site.hosts("mallory") == ["two.c"]


@pytest.mark.threat("T33")
@pytest.mark.parametrize("code", ["ssh.host_key", "ssh.strict_kex", "ssh.gssapi_rule", "ssh.wrong_person"])
@pytest.mark.parametrize("where", ["connecting", "agent"])
def test_a_node_that_lies_is_not_gone_around(site: Site, where: str, code: str) -> None:
    getattr(site, where)["one.c"] = Defect(code, "t", "r")
    for _ in range(2):
        with pytest.raises(Defect, match=code):
            site.hosts()
        assert site.tried == ["one.c"]


@pytest.mark.parametrize(
    ("errors", "code"),
    [((DOWN, DOWN, DOWN), "ssh.unreachable"), ((NO, NO, NO), "ssh.refused"), ((NO, DOWN, NO), "ssh.unreachable")],
)
def test_when_no_node_can_be_used_the_outage_is_told_before_the_refusal(
    site: Site, errors: tuple[BridgeError, ...], code: str
) -> None:
    site.connecting = dict(zip(CLUSTER.login_names, errors, strict=True))
    with pytest.raises(BridgeError, match=code):
        site.hosts()
    assert site.tried == ["one.c", "two.c", "three.c"]


def test_an_outage_of_all_nodes_heals_by_itself(site: Site) -> None:
    site.connecting = dict.fromkeys(CLUSTER.login_names, DOWN)
    for _ in range(2):
        with pytest.raises(Outage):
            site.hosts()
    del site.connecting["three.c"]
    assert site.hosts() == ["one.c", "two.c", "three.c"]
    assert site.hosts() == ["three.c"]


def test_the_node_that_has_rested_longest_is_tried_first_among_the_resting(site: Site) -> None:
    rota = Rota(clock=lambda: site.now)
    for host in ("b", "a"):
        rota.failed(host)
        site.now += 1
    assert rota.order("c", "alice", ["a", "b"]) == ["b", "a"]


def test_one_name_twice_is_one_node(site: Site) -> None:
    twice = replace(CLUSTER, login_hosts=("one.c", "two.c"))
    assert twice.login_names == ("one.c", "two.c")
    assert twice.ssh_targets == ("host/one.c", "host/two.c")
