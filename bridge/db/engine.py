"""Opens the database so that a commit is durable, writers queue, and nobody waits for long.

SQLite is the default and needs no administrator; PostgreSQL is for sites with several bridges.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url

LOCK_SECONDS: Final = 2
"""How long a writer waits for the others before it gives up."""

WRITES: Final = "bridge_writes"
"""Execution option of connections that will write."""

_POOL: Final = {"pool_size": 8, "max_overflow": 8, "pool_timeout": LOCK_SECONDS}

_FILE_MODE: Final = 0o660
"""Broker and web share the file through a group; a umask can only take more away."""

_SQLITE_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    # FULL: a commit returns after fsync; NORMAL would lose acknowledged records with the power.
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000}",
)

_POSTGRESQL_OPTIONS: Final = (
    "-c synchronous_commit=on -c timezone=UTC "
    f"-c lock_timeout={LOCK_SECONDS * 1000} -c statement_timeout=10000 -c idle_in_transaction_session_timeout=30000"
)


def open_database(url: str) -> Engine:
    """An engine for ``sqlite:////absolute/path`` or ``postgresql+psycopg://...``; raises ValueError for others.

    A SQLite file that is not there is made, readable by its owner and group only; OSError if it can not be.
    """
    parsed = make_url(url)
    if parsed.drivername == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise ValueError("the database must be a file: an audit log in memory is none")
        # SQLite makes its side files with the mode of this one; it holds nothing for the rest of the world.
        Path(parsed.database).touch(mode=_FILE_MODE, exist_ok=True)
        engine = create_engine(parsed, **_POOL)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.drivername == "postgresql+psycopg":
        return create_engine(
            parsed,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": LOCK_SECONDS, "options": _POSTGRESQL_OPTIONS},
            pool_pre_ping=True,
            **_POOL,
        )
    raise ValueError(f"unsupported database: {parsed.drivername}")


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver's own BEGIN comes too late and is never IMMEDIATE.
    connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the write lock first: a reader that turns writer in the middle can't wait, only fail."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
