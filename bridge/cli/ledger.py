"""Opens the bridge's database for a command: one that is there, and as a writer of the command's name."""

from __future__ import annotations

from pathlib import Path

from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import RequestRefused
from bridge.settings import Settings

SQLITE = "sqlite:///"


def open_ledger(settings: Settings, command: str) -> SqlLedger:
    """Return the ledger; raises RequestRefused ``audit.no_database``: SQLite would make a new file where there is none.

    ``command`` is what the log names as the writer, e.g. ``ci-bridge audit``.
    """
    url = settings.database.url
    if not has_database(settings):
        raise RequestRefused(
            "audit.no_database",
            f"There is no database {url.removeprefix(SQLITE)}.",
            "Name the right settings file with --config, or run 'ci-bridge db upgrade' first.",
        )
    return SqlLedger(open_database(url), Writer.new(command))


def has_database(settings: Settings) -> bool:
    """Whether there is a database to open, as far as that can be known before: SQLite's is a file."""
    url = settings.database.url
    return not url.startswith(SQLITE) or Path(url.removeprefix(SQLITE)).is_file()
