"""Has every test that uses a realm's bridge under the tap: what left during it is looked at when it ends.

What is not seen: what C libraries send by themselves (`recorder`); the last write into TLS of a process that is killed
within it; a deflate stream without zlib's head, a ticket in two pieces of another protocol's framing than HTTP's and
SSH's, and what is enciphered once more; a cache that is taken from a node faster than it can be read there, or that is
no file (it was seen on its way); and the realms of the demo and of the tests of realms, where nothing is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest

from realm import Realm, bridgehost
from realm.workspace import CHECKOUT
from tests.tap import attack, recorder
from tests.tap.watch import Tap

ENVIRONMENT = {"PYTHONPATH": f"{CHECKOUT / 'tests' / 'tap' / 'inside'}:{CHECKOUT}"}
"""With it, a broker or web records what it sends."""

_MOST_THEFTS = 5
"""Each takes half a second."""

TAPS: list[Tap] = []
"""Of the realms that are up."""


def pytest_configure(config: pytest.Config) -> None:
    """Have every realm of this session start its bridge with the recorder."""
    bridgehost.SERVICE = replace(bridgehost.SERVICE, env=ENVIRONMENT)


@cache
def _tap_this_process() -> None:
    """Record what tests send over SSH that are a bridge themselves; once, and late, since it takes a while."""
    recorder.tap_ssh(_from_here)


def _from_here(stream: str, data: bytes) -> None:
    for tap in TAPS[-1:]:
        tap.pieces.put((f"here: {stream}", data, time.time()))


@contextmanager
def tapped_realm() -> Iterator[Realm]:
    """A whole realm whose tap is on; ends with what was delivered and never seen, and with the attack on all loot."""
    _tap_this_process()
    with Realm() as realm:
        tap = Tap(realm)
        TAPS.append(tap)
        try:
            yield realm
            _fail([*tap.look(), *tap.missing(), *_attacked(realm, tap)], "by the end of the realm")
        finally:
            TAPS.remove(tap)
            tap.close()


@contextmanager
def apart(realm: Realm) -> Iterator[Tap]:
    """A tap of its own for a while in which something is to be found; the realm's own does not look at it."""
    own = TAPS[-1]
    _fail(own.look() + own.missing(), "before this test")
    fresh = Tap(realm)
    try:
        fresh.skip()
        yield fresh
    finally:
        fresh.close()
        own.skip()


def _attacked(realm: Realm, tap: Tap) -> list[str]:
    """Give some persons' captured tickets, the newest for each service, to a thief; what has worked."""
    found = []
    for client, entries in sorted(tap.loot.items())[:_MOST_THEFTS]:
        newest = {entry.server: entry for entry in sorted(entries.values(), key=lambda entry: entry.end or 0)}
        worked = attack.successes(realm, newest.values())
        found += [f"with the captured tickets of {client}: {what}" for what in worked]
    return found


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test during which something left that must not."""
    yield
    on_purpose = request.node.get_closest_marker("sends_wrong_tickets") is not None
    for tap in TAPS:
        _fail(tap.look(on_purpose=on_purpose), request.node.nodeid)


def _fail(lines: list[str], where: str) -> None:
    if lines:
        pytest.fail("\n".join([f"The tap, {where}:", *lines]), pytrace=False)
