"""The migrations make exactly the tables that the code knows, on both databases, however often they are run."""

import threading
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, text

from bridge.db.engine import open_database
from bridge.db.migrate import upgrade
from bridge.db.schema import metadata


def test_autogenerate_finds_nothing_to_do(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "render_as_batch": True}
        )
        assert compare_metadata(context, metadata) == []


def test_a_second_upgrade_changes_nothing(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE audit_head SET size = 0"))
    upgrade(engine)
    assert set(inspect(engine).get_table_names()) == {*metadata.tables, "alembic_version"}


def test_processes_that_start_together_upgrade_once(url: str) -> None:
    failures: list[BaseException] = []

    def start() -> None:
        engine = open_database(url)
        try:
            upgrade(engine)
        except BaseException as error:
            failures.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM audit_head")).scalar_one() == 1
    engine.dispose()


def test_sqlite_is_set_up_to_lose_nothing_and_to_show_nothing_to_others(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'bridge.db'}")
    upgrade(engine)
    with engine.connect() as connection:
        said = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert engine.url.database is not None
    for suffix in ("", "-wal", "-shm"):
        assert Path(engine.url.database + suffix).stat().st_mode & 0o007 == 0
    assert said == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 2000}
    engine.dispose()
