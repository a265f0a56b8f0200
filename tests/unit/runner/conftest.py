"""Gives the executor's tests a bridge on a socket and a runner's host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_bridge import ContractBridge
from executor_call import Runner


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
