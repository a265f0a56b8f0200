"""Databases for tests: migrations run once in a process, and every SQLite file after that is a copy of the first."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from sqlalchemy import Engine, make_url

from bridge.db.engine import open_database
from bridge.db.migrate import upgrade


def open_migrated(url: str) -> Engine:
    """Open an empty database, and bring its tables up to date."""
    engine, parsed = open_database(url), make_url(url)
    if parsed.drivername == "sqlite" and parsed.database and not Path(parsed.database).stat().st_size:
        Path(parsed.database).write_bytes(_migrated())
    else:
        upgrade(engine)
    return engine


@functools.cache
def _migrated() -> bytes:
    """The bytes of a SQLite database with all tables, and nothing in its side files."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "migrated.sqlite3"
        engine = open_database(f"sqlite:///{path}")
        upgrade(engine)
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        engine.dispose()
        return path.read_bytes()
