"""Several brokers on one database: nobody's change is lost, and nobody takes the others' for an attack."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import Defect
from bridge.register import RegisterHead
from bridge.seal import Seal
from bridge.sealed import SealedRegister
from bridge.sealmark import RevisionMark
from tests.register_example import GITLAB, NOW, link, switch

Start = Callable[[str], SealedRegister]

EVIL = (
    "INSERT INTO account_links SELECT 'EVIL', issuer, 666, user_login, account, uid, method, state, proposed_by,"
    " proposed_at, reason, decided_by, decided_at, ended_by, ended_at FROM account_links LIMIT 1"
)


@pytest.fixture
def start(url: str, engine: Engine, tmp_path: Path) -> Iterator[Start]:
    """Starts a broker of a name on the migrated database."""
    engines = []

    def start(name: str) -> SealedRegister:
        engines.append(open_database(url))
        ledger = SqlLedger(engines[-1], Writer.new(name), lambda: NOW)
        return SealedRegister(ledger, Seal(b"k" * 32), RevisionMark(tmp_path / f"{name}.mark"))

    yield start
    for one in engines:
        one.dispose()


def together(*jobs: Callable[[], None]) -> list[BaseException]:
    """Begin jobs at the same time, and wait for them; what they raised."""
    gate, failures = threading.Barrier(len(jobs)), []

    def run(job: Callable[[], None]) -> None:
        gate.wait(30)
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return failures


def test_brokers_that_race_lose_no_change_and_raise_no_alarm(start: Start) -> None:
    brokers = [start("a"), start("b")]
    done = threading.Event()
    left = [4]
    lock = threading.Lock()

    def change(broker: SealedRegister, first: int) -> None:
        for number in range(first, first + 15):
            with broker.begin() as (tx, register):
                assert register.link(f"LINK-{number}") is None
                tx.put_link(link(f"LINK-{number}", number))
        with lock:
            left[0] -= 1
            if left[0] == 0:
                done.set()

    def look(broker: SealedRegister) -> None:
        revision = 0
        while not done.is_set():
            with broker._ledger.read() as view:
                head = view.register_head()
                register = broker.current(view)
            assert register.revision >= max(head.revision, revision)
            assert len(register.links) == register.revision
            revision = register.revision

    def in_turn(step: Callable[[], None]) -> Callable[[], None]:
        def job() -> None:
            try:
                step()
            except BaseException:
                done.set()
                raise

        return job

    jobs = [lambda broker=one, first=100 * i: change(broker, first) for i, one in enumerate(brokers * 2)]
    looks = [lambda broker=one: look(broker) for one in brokers * 2]
    assert together(*map(in_turn, jobs + looks)) == []
    for one in (*brokers, start("a"), start("new")):
        assert one.read().revision == len(one.read().links) == 60


def test_changes_of_one_link_by_several_brokers_come_one_after_the_other(start: Start) -> None:
    """Each builds on what the one before it left."""
    with start("first").begin() as (tx, _):
        tx.put_link(link(user_login=""))

    def add(broker: SealedRegister, letter: str) -> None:
        for _ in range(10):
            with broker.begin() as (tx, register):
                [one] = register.links
                tx.put_link(link(user_login=one.user_login + letter))

    brokers = [(start(letter), letter) for letter in "abc"]
    assert together(*(lambda one=one: add(*one) for one in brokers)) == []
    [found] = start("new").read().links
    assert sorted(found.user_login) == sorted("abc" * 10)


def test_views_from_before_a_change_are_given_the_newest_without_waiting_for_connections(start: Start) -> None:
    """As many as the pool has hold one each, and see an older head than their broker knows."""
    broker, count = start("a"), 8
    opened, changed = threading.Barrier(count + 1), threading.Event()
    seen: list[int] = []

    def hold() -> None:
        with broker._ledger.read() as view:
            view.register_head()
            opened.wait(30)
            assert changed.wait(30)
            seen.append(broker.current(view).revision)

    def change() -> None:
        opened.wait(30)
        with broker.begin() as (tx, _):
            tx.put_link(link())
        changed.set()

    assert together(*[hold] * count, change) == []
    assert seen == [1] * count


@pytest.mark.threat("T21")
def test_a_database_writer_can_not_add_to_a_change_before_it_begins(start: Start, engine: Engine) -> None:
    broker = start("a")
    with broker.begin() as (tx, _):
        tx.put_link(link())
    with engine.begin() as connection:
        connection.execute(text(EVIL))
    with pytest.raises(Defect, match=r"register\.broken"), broker.begin() as (tx, _):
        tx.kill(switch())
    with pytest.raises(Defect, match=r"register\.broken"):
        start("a").read()


@pytest.mark.threat("T21")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_database_writer_can_not_add_to_a_change_while_it_is_made(start: Start, engine: Engine) -> None:
    """PostgreSQL lets others write beside a transaction; SQLite lets nobody."""
    broker = start("a")
    with broker.begin() as (tx, _):
        tx.put_link(link())

    def change() -> None:
        with broker.begin() as (tx, register):
            assert register.active_link(GITLAB, 666) is None
            with engine.begin() as connection:
                connection.execute(text(EVIL))
            tx.kill(switch())

    with pytest.raises(Defect, match=r"register\.broken"):
        change()
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM account_links WHERE link_id = 'EVIL'"))
    assert broker.read() == start("a").read()
    assert broker.read().revision == 1


@pytest.mark.threat("T21")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("deferred", [False, True], ids=["at once", "at the commit"])
def test_a_trigger_can_not_add_to_what_is_sealed(start: Start, engine: Engine, *, deferred: bool) -> None:
    broker = start("a")
    with broker.begin() as (tx, _):
        tx.put_link(link())
    how = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
    with engine.begin() as connection:
        body = f"BEGIN {EVIL} ON CONFLICT DO NOTHING; RETURN NULL; END"
        connection.execute(text(f"CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"))
        kind = "CONSTRAINT TRIGGER" if deferred else "TRIGGER"
        connection.execute(
            text(f"CREATE {kind} evil AFTER INSERT ON kill_switches {how} FOR EACH ROW EXECUTE FUNCTION evil()")
        )
    if not deferred:
        with pytest.raises(Defect, match=r"register\.broken"), broker.begin() as (tx, _):
            tx.kill(switch())
        assert start("a").read().revision == 1
        return
    # The row came after everything was looked at, and is under no seal.
    with broker.begin() as (tx, _):
        tx.kill(switch())
    assert broker.read().active_link(GITLAB, 666) is None
    with pytest.raises(Defect, match=r"register\.broken"):
        start("a").read()


def test_a_head_that_another_broker_left_behind_is_checked_again(start: Start, engine: Engine) -> None:
    one, other = start("a"), start("b")
    for broker, number in ((one, 1), (other, 2), (one, 3)):
        with broker.begin() as (tx, register):
            assert register.revision == number - 1
            tx.put_link(link(f"LINK-{number}", number))
    with one._ledger.read() as view:
        head = view.register_head()
    assert head.revision == 3
    assert isinstance(head, RegisterHead)
    assert one.read() == other.read()
