"""A broker, and a web process in front of it, for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Broker, Web
from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.broker.client import BrokerClient
from bridge.runs.live_run import LiveRun
from tests.fakes import FakeCluster


@pytest.fixture(scope="session")
def signing_key() -> rsa.RSAPrivateKey:
    """The issuer's key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of a database of its own."""
    return f"sqlite:///{tmp_path / 'bridge.sqlite3'}"


@pytest.fixture
def broker(database: str, signing_key: rsa.RSAPrivateKey, tmp_path: Path) -> Iterator[Broker]:
    """The broker's parts over a migrated ledger."""
    broker = Broker(database, signing_key, tmp_path)
    yield broker
    broker.engine.dispose()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose name leaves room for a socket's 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="core-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def client(broker: Broker, short_path: Path) -> Iterator[BrokerClient]:
    """The broker, as web sees it."""
    with broker.serving(short_path / "broker.sock") as client:
        yield client


@pytest.fixture
def cluster() -> FakeCluster:
    """A login node and its Slurm."""
    return FakeCluster()


@pytest.fixture
def web(broker: Broker, client: BrokerClient, cluster: FakeCluster) -> Iterator[Web]:
    """A web process."""
    web = Web(broker.ledger, client, cluster)
    yield web
    web.stop()


@pytest.fixture
def live(web: Web, broker: Broker) -> LiveRun:
    """Alice's run, admitted."""
    return web.open(broker.evidence())


@pytest.fixture
def second(broker: Broker, client: BrokerClient, cluster: FakeCluster) -> Iterator[Web]:
    """The web process after a restart: knows the ledger only."""
    web = Web(broker.ledger, client, cluster)
    yield web
    web.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr("bridge.runs.task.FIRST_PAUSE_SECONDS", 0.01)
