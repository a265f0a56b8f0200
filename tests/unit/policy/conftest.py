"""The shipped bundle, loaded once."""

import pytest
from policy_examples import POLICIES

from bridge.policy.bundle import Bundle, load_bundle
from bridge.policy.engine import Engine


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """The bundle of ``policies/``."""
    return load_bundle(POLICIES)


@pytest.fixture(scope="session")
def engine(bundle: Bundle) -> Engine:
    """An engine over it."""
    return Engine(bundle)
