"""Measures S4U pairs (S4U2Self, then S4U2Proxy) against a bare python-gssapi loop on the same KDC, in one run.

    .venv/bin/python benchmarks/tickets.py [--json] [--seconds N]

As root: it starts a KDC of its own. The ratio travels between machines; pairs a second do not. Both sides are the same
number of threads, take turns within each second, and ask for the same tickets; the bare loop checks nothing, keeps its
credentials in a cache of its own in each thread, and throws the tickets away.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from itertools import count

import gssapi

from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from realm import Realm
from realm.principals import BRIDGE, BRIDGE_KEYTAB, DELEGATION_TARGETS
from realm.topology import KRB_REALM
from tests.fakes import FakeGuard

THREADS = (1, 2, 8)
TURN_SECONDS = 0.25
LIFE_SECONDS = 600
AIM = 0.9

PRINCIPAL = f"{BRIDGE}@{KRB_REALM}"
TARGET = DELEGATION_TARGETS[0]
KRB5 = gssapi.MechType.kerberos
NAME = gssapi.NameType.kerberos_principal

Pair = Callable[[], object]
_cache_numbers = count()


def ours(keytab: str) -> Callable[[], Pair]:
    """The bridge's way, shared by all threads, less the look at the account in the directory."""
    able = Impersonation(Exchange(PRINCIPAL, keytab), KRB_REALM, DELEGATION_TARGETS, FakeGuard())
    return lambda: lambda: able.tickets("alice", 20001, (TARGET,), LIFE_SECONDS)


def bare(keytab: str) -> Callable[[], Pair]:
    """What python-gssapi's documentation shows, with a credential for each thread."""

    def for_thread() -> Pair:
        store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:bare{next(_cache_numbers)}"}
        own = gssapi.Credentials(name=gssapi.Name(PRINCIPAL, NAME), usage="initiate", mechs=[KRB5], store=store)

        def pair() -> object:
            person = own.impersonate(name=gssapi.Name(f"alice@{KRB_REALM}", NAME), mechs=[KRB5], usage="initiate")
            server = gssapi.Name(f"{TARGET}@{KRB_REALM}", NAME)
            return gssapi.SecurityContext(name=server, creds=person, mech=KRB5, usage="initiate").step()

        return pair

    return for_thread


class Side:
    """One side's threads, which work while it is their turn."""

    def __init__(self, realm: Realm, make: Callable[[], Pair], threads: int) -> None:
        self._host = realm.host("bridge")
        self._make = make
        self._turn = threading.Barrier(threads + 1)
        self._end = 0.0
        self._done = [0] * threads
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, args=(index,), daemon=True) for index in range(threads)]
        for thread in self._threads:
            thread.start()

    def turn(self, seconds: float) -> float:
        """Let the threads work and return pairs a second; seconds of 0 end them."""
        began, before = time.perf_counter(), sum(self._done)
        self._end = began + seconds
        self._turn.wait(60)
        self._turn.wait(60)
        if self._failure is not None:
            raise self._failure
        return (sum(self._done) - before) / (time.perf_counter() - began)

    def _work(self, index: int) -> None:
        try:
            with self._host.network():
                pair = self._make()
                pair()
                while True:
                    self._turn.wait()
                    while time.perf_counter() < self._end:
                        pair()
                        self._done[index] += 1
                    self._turn.wait()
        except threading.BrokenBarrierError:
            return
        except BaseException as error:
            self._failure = error
            self._turn.abort()
            raise

    def close(self) -> None:
        """End the threads."""
        self._turn.abort()
        for thread in self._threads:
            thread.join(60)


def measure(realm: Realm, threads: int, seconds: float) -> dict[str, float | int]:
    """Let both sides take turns; medians over the turns."""
    keytab = str(realm.host("bridge").path(BRIDGE_KEYTAB))
    sides = [Side(realm, make(keytab), threads) for make in (ours, bare)]
    try:
        for side in sides:
            side.turn(TURN_SECONDS)
        turns = [[side.turn(TURN_SECONDS) for side in sides] for _ in range(max(3, int(seconds / TURN_SECONDS / 2)))]
    finally:
        for side in sides:
            side.close()
    mine, theirs = (statistics.median(column) for column in zip(*turns, strict=True))
    return {
        "threads": threads,
        "pairs_per_second": round(mine),
        "bare_pairs_per_second": round(theirs),
        "ratio": round(statistics.median(one / other for one, other in turns), 3),
        "aim": AIM,
    }


def main() -> int:
    """Measure and print; exit code 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seconds", type=float, default=20, help="for each number of threads (default 20)")
    options = parser.parse_args()
    with Realm(parts=("kdc",)) as realm:
        os.environ["KRB5_CONFIG"] = str(realm.krb5_conf)
        figures = [measure(realm, threads, options.seconds) for threads in THREADS]
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for row in figures:
            print("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in row.items()))
    return 0 if all(row["ratio"] >= AIM for row in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
