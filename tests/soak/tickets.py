"""Many threads act as many people at once, with refusals and cancelled calls between; the acceptor says who came."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import gssapi
from gssapi import raw

from bridge.errors import BridgeError
from bridge.kerberos.breaker import Breaker
from bridge.kerberos.deadline import Deadline
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.holding import hold
from bridge.kerberos.impersonation import Impersonation
from realm import Realm
from realm.principals import BRIDGE, BRIDGE_KEYTAB, DELEGATION_TARGETS
from realm.topology import KRB_REALM
from tests.fakes import FakeGuard

PRINCIPAL = f"{BRIDGE}@{KRB_REALM}"
LOGIN, UNLISTED = DELEGATION_TARGETS[0], "host/node1.realm.test"
LIFE_SECONDS = 600
AT_ONCE = 3
"""How many people's tickets a thread holds side by side."""
REFUSALS, CANCELS = 0.3, 0.3
"""Shares of rounds with a refused and with a cancelled call."""
HASTE_SECONDS = 0.002
"""About the length of an exchange: some calls are given up before it, some in it, some come through."""

_KRB5 = gssapi.MechType.kerberos
_FLAGS = int(gssapi.RequirementFlag.mutual_authentication)


@dataclass
class Figures:
    """What was done so far. ``wrong`` names each context whose initiator was somebody else."""

    contexts: int = 0
    bundles: int = 0
    refused: int = 0
    cancelled: int = 0
    people: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, **counts: int) -> None:
        """Count what one round did."""
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


@contextmanager
def crowd(realm: Realm, size: int) -> Iterator[list[str]]:
    """Have so many people at the KDC until the end of the block."""
    names = [f"soak{number:03}" for number in range(size)]
    realm.kdc.kadmin(*(f"addprinc -randkey {name}" for name in names))
    try:
        yield names
    finally:
        realm.kdc.kadmin(*(f"delprinc -force {name}" for name in names))


class Soak:
    """The threads' common work; ``run`` ends when ``goes_on`` says so, or at the first wrong context."""

    def __init__(self, realm: Realm, people: Sequence[str], contexts_each: int, seed: int) -> None:
        """Take how many contexts are made with each bundle."""
        self._realm = realm
        self._people = people
        self._contexts_each = contexts_each
        self._seed = seed
        keytab = str(realm.host("bridge").path(BRIDGE_KEYTAB))
        self._host_keytab = str(realm.host("login").path("/etc/krb5.keytab"))
        listed = (*DELEGATION_TARGETS, UNLISTED)
        self._able = Impersonation(Exchange(PRINCIPAL, keytab), KRB_REALM, listed, FakeGuard())
        never_open = Breaker(silences=1 << 60)
        hasty = Exchange(PRINCIPAL, keytab, deadline=Deadline(HASTE_SECONDS), breaker=never_open)
        self._hasty = Impersonation(hasty, KRB_REALM, listed, FakeGuard())
        self.figures = Figures()

    def run(self, threads: int, goes_on: Callable[[int], bool]) -> Figures:
        """Work in so many threads; each asks ``goes_on`` with the number of its rounds so far."""
        workers = [threading.Thread(target=self._work, args=(index, goes_on), daemon=True) for index in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return self.figures

    def _work(self, index: int, goes_on: Callable[[int], bool]) -> None:
        draw, rounds = random.Random(self._seed + index), 0
        try:
            with self._realm.host("bridge").network():
                service = Service(self._host_keytab)
                while goes_on(rounds) and not self.figures.wrong:
                    self._round(draw, service, (index * AT_ONCE + rounds * 7) % len(self._people))
                    rounds += 1
        except Exception as error:
            # A thread that dies must be seen in the figures.
            with self.figures.lock:
                self.figures.broken.append(repr(error))

    def _round(self, draw: random.Random, service: Service, begin: int) -> None:
        people = [self._people[(begin + step) % len(self._people)] for step in range(AT_ONCE)]
        if draw.random() < REFUSALS:
            self._refused(draw.choice(people))
        if draw.random() < CANCELS:
            self._cancelled(draw.choice(self._people))
        with contextlib.suppress(_GivenUp), ExitStack() as held:
            able = [self._credential(held, name) for name in people]
            for step in range(self._contexts_each * AT_ONCE):
                self._context(service, people[step % AT_ONCE], able[step % AT_ONCE])
            if draw.random() < CANCELS:
                raise _GivenUp
        self.figures.add(contexts=self._contexts_each * AT_ONCE, bundles=AT_ONCE)

    def _credential(self, held: ExitStack, name: str) -> gssapi.Credentials:
        bundle = self._able.tickets(name, 20001, DELEGATION_TARGETS[:1], LIFE_SECONDS)
        if {bundle.principal, *(ticket.client for ticket in bundle.tickets)} != {f"{name}@{KRB_REALM}"}:
            self._is_wrong(name, bundle.principal)
        return held.enter_context(hold(bundle))

    def _context(self, service: Service, name: str, credential: gssapi.Credentials) -> None:
        came = service.accept(credential)
        if came != f"{name}@{KRB_REALM}":
            self._is_wrong(name, came)
        self.figures.people[name] += 1

    def _refused(self, name: str) -> None:
        with contextlib.suppress(BridgeError):
            self._able.tickets(name, 20001, (LOGIN, UNLISTED), LIFE_SECONDS)
            self._is_wrong(name, "a service that is on no list")
        self.figures.add(refused=1)

    def _cancelled(self, name: str) -> None:
        try:
            bundle = self._hasty.tickets(name, 20001, (LOGIN,), LIFE_SECONDS)
        except BridgeError:
            self.figures.add(cancelled=1)
            return
        if bundle.principal != f"{name}@{KRB_REALM}":
            self._is_wrong(name, bundle.principal)

    def _is_wrong(self, name: str, came: str) -> None:
        with self.figures.lock:
            self.figures.wrong.append(f"{name} came as {came}")


class Service:
    """The login node's service, with its keytab: says who came."""

    def __init__(self, keytab: str) -> None:
        store: dict[str | bytes, str | bytes] = {b"keytab": f"FILE:{keytab}".encode(), b"rcache": b"none:"}
        self._own = raw.acquire_cred_from(store, None, None, [_KRB5], "accept").creds
        self._name = raw.import_name(f"{LOGIN}@{KRB_REALM}".encode(), gssapi.NameType.kerberos_principal)

    def accept(self, credential: gssapi.Credentials) -> str:
        """Make a context with this credential, and give its initiator as the acceptor sees it."""
        token = raw.init_sec_context(self._name, credential, None, _KRB5, _FLAGS, None).token
        came = raw.accept_sec_context(token or b"", self._own).initiator_name
        return raw.display_name(came, name_type=False).name.decode() if came else ""


class _GivenUp(Exception):
    """The job is cancelled while its tickets are in use."""


def for_minutes(minutes: float) -> Callable[[int], bool]:
    """A bound in time."""
    end = time.monotonic() + 60 * minutes
    return lambda _rounds: time.monotonic() < end
