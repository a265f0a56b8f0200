"""Databases of both kinds for the tests of races."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.migrated import open_migrated
from tests.unit.db import postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A migrated database of its own."""
    if request.param == "sqlite":
        yield from _migrated(f"sqlite:///{tmp_path / 'bridge.db'}")
    else:
        assert postgresql.available(), "needs root and Debian's postgresql: run scripts/setup"
        with postgresql.postgresql() as url:
            yield from _migrated(url)


def _migrated(url: str) -> Iterator[Engine]:
    engine = open_migrated(url)
    yield engine
    engine.dispose()
