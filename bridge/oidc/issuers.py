"""The public keys of each issuer, as fresh as they must be and as old as they may be.

    age < 5 min            used as they are
    5 min .. 60 min        one caller's fetch at a time; if it fails, the last good set is still used
    >= 60 min              Outage: nobody is let in on keys that may have been withdrawn an hour ago

An unknown kid may be a new key, so that it leads to a fetch at once, but to at most one in 30 s, whatever other fetches
there were; after a failed fetch none is tried for a while either. A new set replaces the old one whole, so that
withdrawn keys die with the first good fetch.
Ages are counted on a monotonic clock, which no step of the wall clock can turn back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bridge.errors import Outage
from bridge.oidc.fetch import TOTAL_SECONDS, KeySetFetcher
from bridge.oidc.jwks import BadKeySet, thumbprint
from bridge.oidc.refusal import token_refused

SOFT_SECONDS: Final = 5 * 60
HARD_SECONDS: Final = 60 * 60
UNKNOWN_KID_SECONDS: Final = 30
FAILURE_SECONDS: Final = (5, 10, 20, 30)
"""Pauses after the first, second, ... failed fetch in a row; the last one repeats."""
_ABANDON_SECONDS: Final = 6 * TOTAL_SECONDS

Clock = Callable[[], float]


class KeyEvents(Protocol):
    """Who is told of changes: the audit log and the alarms."""

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        """The issuer's key set is another one now; hex SHA-256 of the modulus by kid."""
        ...

    def failed(self, issuer: str, reason: str) -> None:
        """A fetch failed, or brought a set that can't be trusted; the last good one stays."""
        ...


@dataclass(frozen=True, slots=True)
class _KeySet:
    keys: Mapping[str, RSAPublicKey]
    fetched_at: float


class _Flight:
    """One fetch under way, and the event that ends it."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.landed = threading.Event()


class IssuerKeys:
    """The keys of one issuer; safe to use from many threads, which share a single fetch."""

    def __init__(self, issuer: str, fetcher: KeySetFetcher, events: KeyEvents, clock: Clock = time.monotonic) -> None:
        self._issuer = issuer
        self._fetcher = fetcher
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._set: _KeySet | None = None
        self._flight: _Flight | None = None
        self._failures = 0
        self._next_fetch_at = float("-inf")
        self._next_unknown_at = float("-inf")

    def key(self, kid: str) -> RSAPublicKey:
        """The key ``kid``; raises TokenRefused ``token.unknown_key``, Outage ``issuer.keys_too_old``.

        While fetches fail, a kid that is not in the last good set may be a new key: Outage ``issuer.keys_unconfirmed``.
        Returns within TOTAL_SECONDS, also when the issuer hangs.
        """
        current = self._set
        if current is None or kid not in current.keys or self._age(current) >= SOFT_SECONDS:
            self._refresh(kid)
            current = self._set
        if current is None or self._age(current) >= HARD_SECONDS:
            raise _too_old(self._issuer)
        if kid not in current.keys:
            if self._failures:
                raise _unconfirmed(self._issuer)
            raise token_refused("unknown_key", "kid is not in the issuer's key set", issuer=self._issuer)
        return current.keys[kid]

    def age_seconds(self) -> float | None:
        """Seconds since the last good fetch; None if there was none yet."""
        return None if self._set is None else self._age(self._set)

    def _age(self, keys: _KeySet) -> float:
        return self._clock() - keys.fetched_at

    def _refresh(self, kid: str) -> None:
        """Wait for a fetch that is under way, or begin one if it is time for it."""
        with self._lock:
            now = self._clock()
            flight = self._flight
            if flight is None or now - flight.started_at > _ABANDON_SECONDS:
                if not self._may_fetch(kid, now):
                    return
                flight = self._flight = _Flight(now)
                threading.Thread(target=self._fly, args=(flight,), name="issuer-keys", daemon=True).start()
        flight.landed.wait(TOTAL_SECONDS)

    def _may_fetch(self, kid: str, now: float) -> bool:
        """Whether a fetch is needed still, and not too soon; only those for an unknown kid count against its pause."""
        current = self._set
        if now < self._next_fetch_at:
            return False
        if current is None or self._age(current) >= SOFT_SECONDS:
            return True
        if kid in current.keys or now < self._next_unknown_at:
            return False
        self._next_unknown_at = now + UNKNOWN_KID_SECONDS
        return True

    def _fly(self, flight: _Flight) -> None:
        try:
            keys = self._fetcher.fetch()
        except (BadKeySet, OSError) as error:
            self._land_badly(flight, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must end the flight, or nobody fetches again
            self._land_badly(flight, f"unexpected {type(error).__name__}")
        else:
            self._land(flight, keys)
        finally:
            flight.landed.set()

    def _land(self, flight: _Flight, keys: Mapping[str, RSAPublicKey]) -> None:
        with self._lock:
            if self._flight is not flight:
                return
            before = self._set
            # Counted from the start of the fetch: the answer may be as old as that.
            self._set = _KeySet(keys, flight.started_at)
            self._failures = 0
            self._flight = None
        thumbprints = {kid: thumbprint(key) for kid, key in keys.items()}
        if before is None or {kid: thumbprint(key) for kid, key in before.keys.items()} != thumbprints:
            self._events.changed(self._issuer, thumbprints)

    def _land_badly(self, flight: _Flight, reason: str) -> None:
        with self._lock:
            if self._flight is not flight:
                return
            pause = FAILURE_SECONDS[min(self._failures, len(FAILURE_SECONDS) - 1)]
            self._failures += 1
            self._next_fetch_at = self._clock() + pause
            self._flight = None
        self._events.failed(self._issuer, reason)


class KeysOfIssuer(Protocol):
    """The keys of one issuer, wherever they come from."""

    def key(self, kid: str) -> RSAPublicKey:
        """The key ``kid``; raises TokenRefused ``token.unknown_key``, or Outage where there is no set to trust."""
        ...

    def age_seconds(self) -> float | None:
        """Seconds since the set was last known to be good; None if it never was."""
        ...


class Issuers:
    """The key source of the verifier: the keys of every configured issuer."""

    def __init__(self, issuers: Mapping[str, KeysOfIssuer]) -> None:
        self._issuers = MappingProxyType(dict(issuers))

    def key(self, issuer: str, kid: str) -> RSAPublicKey:
        """The key ``kid`` of ``issuer``, and of no other; raises as ``IssuerKeys.key`` does."""
        return self._issuers[issuer].key(kid)


def _too_old(issuer: str) -> Outage:
    return Outage(
        "issuer.keys_too_old",
        "The signing keys of GitLab could not be fetched for too long.",
        "Run the job again in a few minutes; administrators: check that the bridge reaches the issuer's discovery URL.",
        issuer=issuer,
    )


def _unconfirmed(issuer: str) -> Outage:
    return Outage(
        "issuer.keys_unconfirmed",
        "The token names a signing key that is not known yet, and GitLab's keys can't be fetched at the moment.",
        "Run the job again in a few minutes; administrators: check that the bridge reaches the issuer's discovery URL.",
        issuer=issuer,
    )
