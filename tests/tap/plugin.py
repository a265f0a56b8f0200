"""Has every test that uses a realm's bridge under the tap: what left during it is looked at when it ends.

What is not seen: what C libraries send by themselves (`recorder`); the last write of a process that is killed within it,
where that was into TLS; a raw deflate stream, and what is enciphered once more; a cache that is removed from a node
faster than it can be read there (it was seen on its way); keyrings; and programs on nodes that talk to each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from realm import Realm, bridgehost
from realm.workspace import CHECKOUT
from tests.tap import recorder
from tests.tap.watch import Tap

ENVIRONMENT = {"PYTHONPATH": f"{CHECKOUT / 'tests' / 'tap' / 'inside'}:{CHECKOUT}"}
"""With it, a broker or web records what it sends."""

TAPS: list[Tap] = []
"""Of the realms that are up."""


def pytest_configure(config: pytest.Config) -> None:
    """Have every realm of this session start its bridge with the recorder, and record this process's own SSH."""
    bridgehost.SERVICE = replace(bridgehost.SERVICE, env=ENVIRONMENT)
    recorder.tap_ssh(_from_here)


def _from_here(stream: str, data: bytes) -> None:
    for tap in TAPS[-1:]:
        tap.pieces.put((f"here: {stream}", data, time.time()))


@contextmanager
def tapped_realm() -> Iterator[Realm]:
    """A whole realm whose tap is on; ends with what was delivered and never seen, and with the attack on all loot."""
    with Realm() as realm:
        tap = Tap(realm)
        TAPS.append(tap)
        try:
            yield realm
            _fail(tap.look() + tap.missing(), "by the end of the realm")
        finally:
            TAPS.remove(tap)
            tap.close()


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test during which something left that must not."""
    yield
    forwarding = request.node.get_closest_marker("forwards_tickets") is not None
    for tap in TAPS:
        _fail(tap.look(forwarding=forwarding), request.node.nodeid)


def _fail(lines: list[str], where: str) -> None:
    if lines:
        pytest.fail("\n".join([f"The tap, {where}:", *lines]), pytrace=False)
