"""Lists come page by page from indexes; cancels and idempotency keys are kept; older runs are listed too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from alembic import command
from alembic.config import Config
from ledger_example import NOW, identity, intent, opening
from sqlalchemy import Engine, event, text

from bridge.audit.ledger import Claim
from bridge.audit.log import Writer
from bridge.db.engine import WRITES, open_database
from bridge.db.idempotency import LIFE
from bridge.db.ledger import SqlLedger
from bridge.db.migrate import migrations_directory, upgrade
from bridge.listing import Cancel, EntryFilter, RunFilter, RunRow
from bridge.model import RunId, RunState

ISSUER = identity().issuer


def at(engine: Engine, moment: datetime) -> SqlLedger:
    """The ledger at a moment."""
    return SqlLedger(engine, Writer.new("test@bridge"), lambda: moment)


def filled(engine: Engine, count: int = 7) -> list[RunId]:
    """Runs of two people, two at each moment, oldest first."""
    found = []
    for number in range(count):
        ledger = at(engine, NOW + timedelta(seconds=number // 2))
        who = identity(
            job_id=301 + number, user_id=101 + number % 2, project_id=7 + number % 3, runner_id=1 + number % 2
        )
        with ledger.begin() as tx:
            found.append(tx.open_run(opening(who)).run_id)
            tx.append(intent(who, run_id=found[-1]))
    return found


def pages(ledger: SqlLedger, wanted: RunFilter, limit: int) -> list[int]:
    """The job ids of all pages."""
    found: list[RunRow] = []
    before: tuple[datetime, RunId] | None = None
    while True:
        with ledger.read() as view:
            rows = view.list_runs(wanted, before, limit)
        found += rows
        if len(rows) < limit:
            return [row.job_id for row in found]
        before = (rows[-1].created_at, rows[-1].run_id)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_have_each_run_once_newest_first(engine: Engine, ledger: SqlLedger, limit: int) -> None:
    filled(engine)
    jobs = pages(ledger, RunFilter(), limit)
    assert sorted(jobs) == list(range(301, 308))
    assert [(job - 301) // 2 for job in jobs] == [3, 2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("wanted", "jobs"),
    [
        (RunFilter(issuer=ISSUER, user_id=102), {302, 304, 306}),
        (RunFilter(project_id=8), {302, 305}),
        (RunFilter(account="alice", cluster="pocket", state=RunState.ADMITTED), set(range(301, 308))),
        (RunFilter(account="bob"), set()),
        (RunFilter(since=NOW + timedelta(seconds=2)), {305, 306, 307}),
    ],
)
def test_runs_are_found_by_what_is_asked(engine: Engine, ledger: SqlLedger, wanted: RunFilter, jobs: set[int]) -> None:
    filled(engine)
    assert set(pages(ledger, wanted, 2)) == jobs


@pytest.mark.parametrize(
    "wanted",
    [
        RunFilter(),
        RunFilter(account="alice"),
        RunFilter(cluster="pocket"),
        RunFilter(issuer=ISSUER, user_id=101),
        RunFilter(project_id=7),
        RunFilter(state=RunState.ADMITTED),
    ],
    ids=str,
)
def test_no_list_reads_every_run_or_any_grant(tmp_path: object, wanted: RunFilter) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/bridge.db")
    upgrade(engine)
    seen: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    with at(engine, NOW).read() as view:
        view.list_runs(wanted, (NOW, RunId("a" * 26)), 10)
    (query,) = (one for one in seen if "FROM runs" in one)
    assert "grant_json" not in query
    with engine.connect() as connection:
        count = query.count("?")
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", tuple([1] * count)).all()
    engine.dispose()
    assert not any(row[3].startswith("SCAN") and "INDEX" not in row[3] for row in plan)


def test_runners_are_those_that_runs_came_by(engine: Engine, ledger: SqlLedger) -> None:
    filled(engine)
    with ledger.read() as view:
        first = view.list_runners(None, 1)
        rest = view.list_runners((first[0].issuer, first[0].runner_id), 5)
    assert [(one.runner_id, one.runs) for one in (*first, *rest)] == [(1, 4), (2, 3)]
    assert (first[0].first_run_at, first[0].last_run_at) == (NOW, NOW + timedelta(seconds=3))


def test_runs_of_earlier_releases_are_listed_by_their_people(engine: Engine, ledger: SqlLedger) -> None:
    filled(engine)
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        config = Config()
        config.set_main_option("script_location", str(migrations_directory()))
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
        names = {row[0] for row in connection.execute(text("SELECT * FROM runs")).cursor.description}
        assert "user_id" not in names
        command.upgrade(config, "head")
    assert set(pages(ledger, RunFilter(issuer=ISSUER, user_id=102), 10)) == {302, 304, 306}


def test_entries_are_found_from_a_moment_on(engine: Engine, ledger: SqlLedger) -> None:
    filled(engine)
    with ledger.read() as view:
        firsts = [view.first_seq_since(NOW + timedelta(seconds=number)) for number in range(-1, 5)]
        found = view.find_entries(EntryFilter(type="admission", job_id=303), 0, 99, 10, newest=True)
    assert firsts == [0, 0, 2, 4, 6, 7]
    assert [one.index.job_id for one in found] == [303]


def test_a_cancel_is_told_once_and_as_long_as_the_run_lives(engine: Engine, ledger: SqlLedger) -> None:
    run_id, *_ = filled(engine, 2)
    first, second = (Cancel(run_id, who, "why", NOW) for who in ("oli@R", "ola@R"))
    with ledger.begin() as tx:
        assert (tx.cancel_run(first), tx.cancel_run(second)) == (first, first)
    with ledger.read() as view:
        assert (list(view.cancels()), list(view.cancels(run_id))) == ([first], [first])
    with ledger.begin() as tx:
        tx.update_run_state(run_id, {RunState.ADMITTED}, RunState.ENDED)
    with ledger.read() as view:
        assert (list(view.cancels()), list(view.cancels(run_id))) == ([], [first])


def test_a_key_has_one_answer_for_its_principal_and_a_day(engine: Engine) -> None:
    def claim(moment: datetime, who: str = "ann@R", sha: str = "a" * 64) -> Claim | bytes:
        with at(engine, moment).begin() as tx:
            return tx.claim_key(who, "k" * 16, sha)

    def settle(answer: bytes | None) -> None:
        with at(engine, NOW).begin() as tx:
            tx.settle_key("ann@R", "k" * 16, answer)

    assert [claim(NOW), claim(NOW), claim(NOW, sha="b" * 64)] == [Claim.NEW, Claim.BUSY, Claim.OTHER]
    settle(None)
    assert claim(NOW) is Claim.NEW
    settle(b"the answer")
    assert [claim(NOW), claim(NOW, sha="b" * 64), claim(NOW, who="amy@R")] == [b"the answer", Claim.OTHER, Claim.NEW]
    later: Callable[[int], datetime] = lambda seconds: NOW + LIFE + timedelta(seconds=seconds)  # noqa: E731
    assert [claim(later(-1)), claim(later(0))] == [b"the answer", Claim.NEW]
