"""A migrated ledger on each of the two databases."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from ledger_example import NOW
from sqlalchemy import Engine, create_engine, make_url, text

from bridge.audit.log import Writer
from bridge.db.ledger import SqlLedger
from tests.migrated import open_migrated

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own."""
    assert postgresql.available(), "needs root and Debian's postgresql: run scripts/setup"
    with postgresql.postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bridge.db'}"
    server = request.getfixturevalue("server")
    name = f"bridge{next(_NUMBERS)}"
    administrator = create_engine(server, isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    administrator.dispose()
    return make_url(server).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A migrated database."""
    engine = open_migrated(url)
    yield engine
    engine.dispose()


@pytest.fixture
def ledger(engine: Engine) -> SqlLedger:
    """The ledger over it, at NOW."""
    return SqlLedger(engine, Writer.new("test@bridge"), lambda: NOW)
