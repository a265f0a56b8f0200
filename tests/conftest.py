"""Gives tests one pocket realm per session, with every host and service up, and knows the threats by number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from realm import Realm
from realm.errors import RealmError
from realm.workspace import CHECKOUT
from tests.tap import plugin


def pytest_configure(config: pytest.Config) -> None:
    """Have what leaves the bridge in any test parsed, and let a machine under load take as long as it needs."""
    config.pluginmanager.register(plugin, "tap")
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


@pytest.fixture(scope="session")
def realm(worker_id: str) -> Iterator[Realm]:
    """A realm that is up; tests leave it as they found it. Its logs are kept where a test failed."""
    try:
        with plugin.tapped_realm() as realm:
            yield realm
            realm.save_logs(CHECKOUT / ".realm" / "test-logs" / worker_id)
    except RealmError as error:
        pytest.fail(f"{error} {error.remedy}", pytrace=False)
