"""When the self-test runs, what it asks, and what each answer makes of the broker; the KDC is a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench import wait_until

from bridge.audit.log import Writer
from bridge.broker.selftest import AWAY_SECONDS, BAD_SECONDS, GOOD_SECONDS, Expectations, Questions, SelfTest
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError, Outage
from bridge.kerberos.probe import Reply
from tests.migrated import open_migrated

LISTED, OTHER = ("host/login@R", "lustre_mds/mds1@R"), ("krbtgt/R@R", "HTTP/bridge@R")
EXPECTED = Expectations(LISTED, OTHER, ["root@R"], None)
GOOD = {**dict.fromkeys(LISTED, Reply.GIVEN), **dict.fromkeys(OTHER, Reply.REFUSED), "root@R": Reply.REFUSED}


@dataclass
class Bench:
    """A self-test over a KDC that is a table, at a time that is a number."""

    ledger: SqlLedger
    replies: dict[str, Reply] = field(default_factory=lambda: dict(GOOD))
    ahead: float = 0.0
    error: BridgeError | None = None
    now: float = 0.0
    runs: int = 0
    gate: threading.Event | None = None
    expected: Expectations = EXPECTED

    def test(self) -> SelfTest:
        """The self-test."""
        return SelfTest(self._ask, self._ahead, lambda: self.expected, self.ledger, lambda: self.now)

    def _ahead(self) -> float:
        self.runs += 1
        if self.gate is not None:
            self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return self.ahead

    @contextmanager
    def _ask(self) -> Iterator[Questions]:
        yield Answers(self.replies)


@dataclass
class Answers:
    """``selftest.Questions`` from a table."""

    replies: Mapping[str, Reply]

    def reach(self, target: str) -> Reply:
        """See Questions."""
        return self.replies[target]

    def act_as(self, person: str, target: str) -> Reply:
        """See Questions."""
        assert target in self.replies
        return self.replies[person]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench with a ledger of its own."""
    engine = open_migrated(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    return Bench(SqlLedger(engine, Writer.new("broker@test")))


def code(test: SelfTest) -> str | None:
    """What readiness says."""
    try:
        test.ready()
    except BridgeError as error:
        return error.code
    return None


@pytest.mark.threat("T22")
@pytest.mark.parametrize(
    ("name", "reply", "expected"),
    [
        (OTHER[0], Reply.GIVEN, "selftest.too_much"),
        (OTHER[1], Reply.GIVEN, "selftest.too_much"),
        ("root@R", Reply.GIVEN, "selftest.too_much"),
        (OTHER[1], Reply.UNKNOWN, None),
        ("root@R", Reply.UNKNOWN, None),
        ("root@R", Reply.CLOSED, None),
        (LISTED[0], Reply.REFUSED, "selftest.too_little"),
        (LISTED[1], Reply.UNKNOWN, "selftest.too_little"),
        (LISTED[1], Reply.CLOSED, "selftest.too_little"),
    ],
)
def test_each_answer_has_its_consequence(bench: Bench, name: str, reply: Reply, expected: str | None) -> None:
    bench.replies[name] = reply
    assert code(bench.test()) == expected


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("ahead", "expected"), [(0, None), (59, None), (-59, None), (61, "x"), (-61, "x"), (360, "x")])
def test_a_clock_that_is_off_makes_the_broker_unready(bench: Bench, ahead: float, expected: str | None) -> None:
    bench.ahead = ahead
    assert code(bench.test()) == (expected and "selftest.clock_skew")


@pytest.mark.parametrize(
    ("break_it", "seconds"),
    [("nothing", GOOD_SECONDS), ("root@R", BAD_SECONDS), ("away", AWAY_SECONDS)],
)
def test_a_result_holds_for_its_time_and_no_longer(bench: Bench, break_it: str, seconds: float) -> None:
    test = bench.test()
    if break_it == "away":
        bench.error = Outage("kerberos.kdc_unreachable", "No KDC answers.", "Retry.")
    elif break_it != "nothing":
        bench.replies[break_it] = Reply.GIVEN
    first = code(test)
    assert (first is None) == (break_it == "nothing")
    bench.now += seconds - 0.1
    assert code(test) == first
    assert bench.runs == 1
    bench.error, bench.replies = None, dict(GOOD)
    bench.now += 0.2
    assert code(test) is None
    assert bench.runs == 2


def test_before_the_first_result_the_broker_is_not_ready(bench: Bench) -> None:
    bench.gate = threading.Event()
    test = bench.test()
    runner = threading.Thread(target=test.run)
    runner.start()
    try:
        wait_until(lambda: bench.runs == 1, "the first run")
        assert code(test) == "selftest.pending"
    finally:
        bench.gate.set()
        runner.join(30)
    assert code(test) is None


def test_others_have_the_old_result_while_one_asks_anew(bench: Bench) -> None:
    test = bench.test()
    assert code(test) is None
    bench.now, bench.gate = GOOD_SECONDS, threading.Event()
    runner = threading.Thread(target=test.run)
    runner.start()
    try:
        wait_until(lambda: bench.runs == 2, "the second run")
        assert [code(test) for _ in range(20)] == [None] * 20
        assert bench.runs == 2
    finally:
        bench.gate.set()
        runner.join(30)


def test_without_a_record_nothing_is_tried(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No intent, no question to the KDC that could give a ticket of somebody."""

    def full() -> object:
        raise Outage("database.full", "The disk is full.", "Make room.")

    asked = list[str]()
    monkeypatch.setattr(bench.ledger, "begin", full)
    monkeypatch.setattr(Answers, "act_as", lambda self, person, target: asked.append(person))
    monkeypatch.setattr(Answers, "reach", lambda self, target: asked.append(target))
    assert code(bench.test()) == "database.full"
    assert asked == []


def test_a_failure_is_raised_anew_each_time(bench: Bench) -> None:
    bench.replies["root@R"] = Reply.GIVEN
    test, seen = bench.test(), list[BridgeError]()
    for _ in range(2):
        with pytest.raises(BridgeError) as caught:
            test.ready()
        seen.append(caught.value)
    assert seen[0] is not seen[1]
    assert (seen[0].code, seen[0].reference, dict(seen[0].context)) == (
        seen[1].code,
        seen[1].reference,
        dict(seen[1].context),
    )
