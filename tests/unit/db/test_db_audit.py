"""The audit log in the database: gapless, append-only, and every change of it is found and named (T44)."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_example import NOW, identity, intent, opening
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from bridge.audit.ledger import Ledger
from bridge.audit.log import Verdict, Writer, verify
from bridge.audit.merkle import leaf_hash, root_of
from bridge.audit.record import Phase, Record, RecordType
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import Defect
from tests.migrated import open_migrated


def verdict(ledger: Ledger) -> Verdict:
    """Of a full verification now."""
    with ledger.read() as view:
        return verify(view.entries, view.head())


def fill(ledger: Ledger, records: int) -> None:
    """Write that many records, three to a transaction."""
    for start in range(0, records, 3):
        with ledger.begin() as tx:
            for number in range(start, min(start + 3, records)):
                assert tx.append(intent(identity(number + 1))) == number


def unguard(engine: Engine) -> None:
    """Do what a superuser of the database can."""
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.execute(text("DROP TRIGGER audit_no_update"))
            connection.execute(text("DROP TRIGGER audit_no_delete"))
        else:
            connection.execute(text("DROP TRIGGER audit_no_change ON audit"))


def change(engine: Engine, sql: str, **values: object) -> None:
    """Run one statement on the database, past the ledger."""
    with engine.begin() as connection:
        connection.execute(text(sql), values)


def test_a_log_that_nobody_touched_is_whole(ledger: Ledger) -> None:
    assert verdict(ledger) == Verdict(0, root_of([]), None, None)
    fill(ledger, 20)
    found = verdict(ledger)
    assert found.ok
    assert found.size == 20


def test_leaves_carry_their_number_time_and_writer(ledger: Ledger) -> None:
    fill(ledger, 2)
    with ledger.read() as view:
        written = [json.loads(entry.leaf) for entry in view.entries()]
        assert [entry.seq for entry in view.entries(after=0)] == [1]
    assert [one["seq"] for one in written] == [0, 1]
    assert {one["instance"] for one in written} == {"test@bridge"}
    assert {one["ts"] for one in written} == {int(NOW.timestamp() * 1000)}


@pytest.mark.threat("T44")
@pytest.mark.parametrize("verb", ["UPDATE audit SET type = 'x'", "DELETE FROM audit"])
def test_the_database_refuses_changes_by_mistake(engine: Engine, ledger: Ledger, verb: str) -> None:
    fill(ledger, 3)
    with pytest.raises(SQLAlchemyError, match="only appended to"):
        change(engine, verb)
    assert verdict(ledger).ok


@pytest.mark.threat("T44")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_flipped_bit_of_any_leaf_is_found_and_named(tampered: "Tampered", data: st.DataObject) -> None:
    seq = data.draw(st.integers(0, tampered.records - 1))
    leaf = tampered.leaf(seq)
    bit = data.draw(st.integers(0, len(leaf) * 8 - 1))
    flipped = bytearray(leaf)
    flipped[bit // 8] ^= 1 << bit % 8
    with_hash = data.draw(st.booleans())
    hashed = leaf_hash(bytes(flipped)) if with_hash else leaf_hash(leaf)
    tampered.set(seq, bytes(flipped), hashed)
    found = verdict(tampered.ledger)
    tampered.set(seq, leaf, leaf_hash(leaf))
    assert found.bad_seq == seq, found
    assert not found.ok


class Tampered:
    """A log of some records whose guards are gone."""

    records = 37

    def __init__(self, engine: Engine, ledger: Ledger) -> None:
        self.engine = engine
        self.ledger = ledger
        fill(ledger, self.records)
        unguard(engine)

    def leaf(self, seq: int) -> bytes:
        with self.ledger.read() as view:
            return next(entry.leaf for entry in view.entries(after=seq - 1))

    def set(self, seq: int, leaf: bytes, hashed: bytes) -> None:
        change(
            self.engine, "UPDATE audit SET leaf = :leaf, leaf_hash = :hashed WHERE seq = :seq",
            leaf=leaf, hashed=hashed, seq=seq,
        )  # fmt: skip


@pytest.fixture
def tampered(engine: Engine, ledger: Ledger) -> Tampered:
    """A log to be tampered with."""
    return Tampered(engine, ledger)


SWAP = """UPDATE audit SET leaf = (SELECT o.leaf FROM audit o WHERE o.seq = 15 - audit.seq),
          leaf_hash = (SELECT o.leaf_hash FROM audit o WHERE o.seq = 15 - audit.seq) WHERE seq IN (7, 8)"""
DOUBLE = """INSERT INTO audit SELECT 37, ts, type, phase, reference, run_id, job_id, leaf, leaf_hash, root
            FROM audit WHERE seq = 36"""

ATTACKS: dict[str, tuple[list[str], int]] = {
    "delete one": (["DELETE FROM audit WHERE seq = 12"], 12),
    "delete the first": (["DELETE FROM audit WHERE seq = 0"], 0),
    "cut the tail": (["DELETE FROM audit WHERE seq >= 30"], 30),
    "swap two": ([SWAP], 7),
    "double the last": ([DOUBLE], 37),
    "renumber": (["UPDATE audit SET seq = 99 WHERE seq = 20"], 20),
    "hide from a search": (["UPDATE audit SET job_id = 999 WHERE seq = 5"], 5),
    "another reference": (["UPDATE audit SET reference = 'x' WHERE seq = 5"], 5),
    "another type": (["UPDATE audit SET type = 'service' WHERE seq = 5"], 5),
    "another time": (["UPDATE audit SET ts = ts + 1 WHERE seq = 5"], 5),
    "head's size": (["UPDATE audit_head SET size = 36"], 36),
    "head's root": (["UPDATE audit_head SET root = compact_range"], 37),
}


@pytest.mark.threat("T44")
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_other_change_is_found_and_named(tampered: Tampered, attack: str) -> None:
    statements, seq = ATTACKS[attack]
    for statement in statements:
        change(tampered.engine, statement)
    if attack == "head's size":
        with pytest.raises(Defect, match=r"audit\.head_malformed"):
            verdict(tampered.ledger)
        return
    found = verdict(tampered.ledger)
    assert (found.ok, found.bad_seq) == (False, seq), found


def test_eight_writers_leave_no_gap(url: str, engine: Engine) -> None:
    ledgers = [SqlLedger(open_database(url), Writer.new(f"w{number}"), lambda: NOW) for number in range(2)]
    mine: list[list[int]] = [[] for _ in range(8)]

    def write(number: int) -> None:
        for _ in range(25):
            with ledgers[number % 2].begin() as tx:
                mine[number].append(tx.append(intent()))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seq for one in mine for seq in one) == list(range(200))
    assert all(one == sorted(one) for one in mine)
    assert verdict(ledgers[0]).ok
    for ledger in ledgers:
        ledger._writing.dispose()


@pytest.mark.threat("T7")
def test_two_processes_accept_each_token_once(tmp_path: Path) -> None:
    jobs = 60
    url = f"sqlite:///{tmp_path / 'bridge.db'}"
    engine = open_migrated(url)
    command = [sys.executable, str(Path(__file__).with_name("presenter.py")), url]
    presenters = [
        subprocess.Popen([*command, letter, str(jobs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for letter in "ab"
    ]
    for one in presenters:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in presenters:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [one.communicate(timeout=60)[0].splitlines() for one in presenters]
    for job in zip(*answers, strict=True):
        assert sorted(answer.split()[0] for answer in job) == ["accepted", "token.replayed"]
    ledger = SqlLedger(engine, Writer.new("checker"), lambda: NOW)
    found = verdict(ledger)
    assert (found.ok, found.size) == (True, jobs)
    engine.dispose()


@pytest.mark.threat("T7")
def test_a_writer_that_is_killed_leaves_whole_transactions_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bridge.db'}"
    engine = open_migrated(url)
    command = [sys.executable, str(Path(__file__).with_name("presenter.py")), url, "a", "100000"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        acknowledged = [process.stdout.readline().split()[1] for _ in range(30)]
        process.kill()
    ledger = SqlLedger(engine, Writer.new("checker"), lambda: NOW)
    with ledger.read() as view:
        runs = {run.run_id for run in view.live_runs()}
        recorded = {json.loads(entry.leaf)["run_id"] for entry in view.entries()}
    assert set(acknowledged) <= runs
    assert runs == recorded
    assert verdict(ledger).ok
    engine.dispose()


def test_the_timeline_of_a_job_has_its_run_and_its_refusals(ledger: Ledger) -> None:
    alice, bob = identity(301), identity(302)
    with ledger.begin() as tx:
        run_id = tx.open_run(opening(alice)).run_id
        tx.append(Record(RecordType.ADMISSION, Phase.DENIED, "ref-0", actor=intent(alice).actor, code="x.y"))
        tx.append(intent(alice, run_id=run_id))
        tx.append(intent(bob))
        tx.append(Record(RecordType.STAGE, Phase.INTENT, "ref-2", run_id=run_id, stage="build_script"))
        tx.append(Record(RecordType.KEYS, Phase.EVENT, "ref-3"))
    with ledger.read() as view:
        assert [entry.seq for entry in view.timeline(job_id=301)] == [0, 1, 3]
        assert [entry.seq for entry in view.timeline(job_id=302)] == [2]
        assert [entry.seq for entry in view.timeline(run_id=run_id)] == [1, 3]
        assert [entry.seq for entry in view.timeline(reference="ref-1")] == [1, 2]
        assert view.timeline() == []


CORRUPT: dict[str, Callable[[bytes], bytes]] = {
    "not JSON": lambda leaf: b"x",
    "a list": lambda leaf: b"[]",
    "no number": lambda leaf: b"{}",
    "actor is text": lambda leaf: leaf.replace(b'"actor":{', b'"actor":"x","b":{'),
}


@pytest.mark.threat("T44")
@pytest.mark.parametrize("kind", CORRUPT)
def test_leaves_that_are_no_records_are_named_and_break_nothing(tampered: Tampered, kind: str) -> None:
    leaf = CORRUPT[kind](tampered.leaf(9))
    tampered.set(9, leaf, leaf_hash(leaf))
    assert verdict(tampered.ledger).bad_seq == 9
