"""Gives the executor's tests a bridge on a socket and a runner's host."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_bridge import ContractBridge
from executor_call import Runner
from node_world import Node
from node_world import Realm as NodeRealm


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[ContractBridge]:
    """A bridge that admits everybody and has no events yet."""
    bridge = ContractBridge(tmp_path)
    yield bridge
    bridge.close()


@pytest.fixture
def runner_host(tmp_path: Path, bridge: ContractBridge) -> Runner:
    """A runner's host whose executor knows the bridge."""
    return Runner(tmp_path, bridge.url)


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeRealm]:
    """A KDC for nodes, for all tests."""
    if shutil.which("krb5kdc", path="/usr/sbin:/usr/bin") is None:
        pytest.fail("krb5-kdc is not installed; scripts/setup installs it")
    realm = NodeRealm(tmp_path_factory.mktemp("realm"))
    yield realm
    realm.close()


@pytest.fixture
def node(kdc: NodeRealm, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A compute node whose bridge answers as the test's parameter says."""
    tmp_path.chmod(0o755)
    node = Node(kdc, tmp_path, getattr(request, "param", "ok"))
    yield node
    node.close()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory as tmp_path, that other users can come to."""
    with tempfile.TemporaryDirectory(prefix="ci-bridge-test-") as path:
        Path(path).chmod(0o755)
        yield Path(path)
