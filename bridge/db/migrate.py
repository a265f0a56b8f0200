"""Brings the tables up to date by the migrations of ``migrations/``, from code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text

from bridge.db.engine import WRITES

_UPGRADE_LOCK: Final = 0x63692D62
"""PostgreSQL advisory lock that only upgrades take."""


def upgrade(engine: Engine) -> None:
    """Run every migration that the database has not seen, in one transaction.

    Several processes may call this at the same time: one does it, the others find it done.
    """
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        config = Config()
        config.set_main_option("script_location", str(migrations_directory()))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def migrations_directory() -> Path:
    """Where the migrations lie: inside the installed package, or at the top of a checkout."""
    packaged = Path(__file__).parents[1] / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"
