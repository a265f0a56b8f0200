"""A broker, and web with its pages in front of it, for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.api.admin_site import Admin, admin_site
from tests.api.people_web import Site, site
from tests.unit.core.bench import Broker


@pytest.fixture(scope="session")
def people_key() -> rsa.RSAPrivateKey:
    """The issuer's key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextmanager
def _broker(key: rsa.RSAPrivateKey) -> Iterator[tuple[Broker, Path]]:
    """The broker's parts over a migrated ledger, in a directory whose name leaves room for a socket's 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="api-"))
    broker = Broker(f"sqlite:///{path / 'bridge.sqlite3'}", key, path)
    try:
        yield broker, path
    finally:
        broker.engine.dispose()
        shutil.rmtree(path)


@pytest.fixture
def web_site(people_key: rsa.RSAPrivateKey) -> Iterator[Site]:
    """The application as people reach it."""
    with _broker(people_key) as made, site(*made) as it:
        yield it


@pytest.fixture(scope="module")
def _still(people_key: rsa.RSAPrivateKey) -> Iterator[Site]:
    with _broker(people_key) as made, site(*made) as it:
        yield it


@pytest.fixture
def still_site(_still: Site) -> Iterator[Site]:
    """The same for all tests of a file, which ask for what is refused, and change nothing."""
    _still.client.asked.clear()
    yield _still
    assert _still.broker.register.read().revision == 0


@pytest.fixture
def admin(people_key: rsa.RSAPrivateKey) -> Iterator[Admin]:
    """The admin API, with one person for each role."""
    with _broker(people_key) as made, admin_site(*made) as it:
        yield Admin(it)


@pytest.fixture(scope="module")
def still_admin(people_key: rsa.RSAPrivateKey) -> Iterator[Admin]:
    """The same for all tests of a file, which change nothing that others look at."""
    with _broker(people_key) as made, admin_site(*made) as it:
        yield Admin(it)
