"""While the KDC gives the bridge too much, the broker gives nobody tickets, except to end what runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench import refused
from test_broker_selftest import LISTED, OTHER, Answers, Bench

from bridge.audit.log import Writer
from bridge.broker import selftest
from bridge.broker.kerberos_side import bounded
from bridge.broker.peer import Peer
from bridge.broker.selftest import BAD_SECONDS, SelfTest
from bridge.broker.server import Answer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.db.migrate import upgrade
from bridge.errors import Defect, Outage
from bridge.kerberos.probe import Reply

GIVES_TICKETS = ("admit", "tickets", "node_tickets")
WEB = Peer(pid=1, uid=0, gid=0)
AWAY = Outage("kerberos.kdc_unreachable", "No KDC answers.", "Retry.")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench with a ledger of its own."""
    engine = open_database(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    upgrade(engine)
    return Bench(SqlLedger(engine, Writer.new("broker@test")))


def given(test: SelfTest, op: str, **fields: object) -> bool:
    """Whether a request gets as far as its handler."""

    def handler(_request: Mapping[str, Any], _peer: Peer) -> Answer:
        return {}, b"tickets"

    handlers = bounded(dict.fromkeys((*GIVES_TICKETS, "node_claim", "policy_read"), handler), test)
    try:
        return handlers[op]({"op": op, **fields}, WEB) == ({}, b"tickets")
    except Defect:
        return False


@pytest.mark.threat("T22")
@pytest.mark.parametrize("name", [*OTHER, "root@R"])
def test_a_kdc_that_gives_too_much_stops_all_tickets_but_those_that_end_a_run(bench: Bench, name: str) -> None:
    bench.replies[name] = Reply.GIVEN
    test = bench.test()
    test.run()
    assert not any(given(test, op) for op in GIVES_TICKETS)
    assert not any(given(test, "tickets", use=use) for use in ("ssh", "login"))
    assert given(test, "tickets", use="end")
    assert given(test, "node_claim")
    assert given(test, "policy_read")


@pytest.mark.parametrize("trouble", ["none", "too little", "clock", "away"])
def test_other_trouble_stops_only_those_whom_it_concerns(bench: Bench, trouble: str) -> None:
    if trouble == "too little":
        bench.replies[LISTED[0]] = Reply.REFUSED
    bench.ahead, bench.error = (300.0 if trouble == "clock" else 0.0), (AWAY if trouble == "away" else None)
    test = bench.test()
    test.run()
    assert all(given(test, op) for op in GIVES_TICKETS)


@pytest.mark.threat("T22")
@pytest.mark.parametrize("later", ["away", "clock", "away midway"])
def test_only_a_test_that_came_to_its_end_opens_again(
    bench: Bench, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.replies["root@R"] = Reply.GIVEN
    test = bench.test()
    test.run()

    def gone(_self: Answers, _person: str, _target: str) -> Reply:
        raise AWAY

    with monkeypatch.context() as midway:
        if later == "away midway":
            midway.setattr(Answers, "act_as", gone)
        _try_again(bench, test, later)
    assert not given(test, "admit")
    bench.ahead, bench.error, bench.replies["root@R"] = 0.0, None, Reply.REFUSED
    bench.replies[LISTED[0]] = Reply.REFUSED
    test.run()
    assert given(test, "admit")


def _try_again(bench: Bench, test: SelfTest, later: str) -> None:
    bench.ahead, bench.error = (300.0 if later == "clock" else 0.0), (AWAY if later == "away" else None)
    bench.now += BAD_SECONDS
    test.run()


@pytest.mark.threat("T22")
def test_before_the_first_result_nobody_gets_tickets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "FIRST_SECONDS", 0.0)
    test = bench.test()
    assert refused(test.require_bounds).code == "selftest.pending"
    test.run()
    test.require_bounds()


@pytest.mark.threat("T22")
def test_a_result_that_is_too_old_is_renewed_though_nobody_asks(bench: Bench) -> None:
    test, waits = bench.test(), list[float]()

    class Enough(Exception):
        """Ends the loop."""

    class Waiting(threading.Event):
        """Lets the time pass at once, and changes the KDC while it does."""

        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            bench.now += timeout or 0.0
            bench.replies["root@R"] = Reply.GIVEN if len(waits) == 1 else Reply.REFUSED
            seen.append(given(test, "admit"))
            if len(waits) == 3:
                raise Enough
            return False

    seen = list[bool]()
    test._again = Waiting()
    with pytest.raises(Enough):
        test.keep()
    assert waits == [selftest.GOOD_SECONDS, selftest.BAD_SECONDS, selftest.GOOD_SECONDS]
    assert seen == [True, False, True]
