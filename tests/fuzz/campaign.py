"""Presents forged tokens to the verifier and judges what it does with each; counts what it said."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter

from bridge.errors import TokenRefused
from bridge.model import UnverifiedToken
from bridge.oidc.verifier import Verifier
from tests.fuzz.forgeries import Forger
from tests.identity.trust import genuine_claims, verifier_of
from tests.unit.oidc.issuer_example import NOW
from tests.unit.oidc.jwk import new_key

MAX_SECONDS = 0.25
"""Processor time for one token: a hundred times what a genuine one takes."""
MAX_BYTES = 4 * 1024 * 1024
"""Memory for one token, of which 16 KiB are looked at."""
WEIGHED = 16
"""Memory is measured for every so many tokens: measuring makes each of them ten times slower."""


class Campaign:
    """One verifier under attack, and the tally."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        key = new_key()
        self.forger = Forger(key, new_key(), genuine_claims(NOW))
        self._verifier = verifier or verifier_of(key.public_key())
        self._verifier.verify(UnverifiedToken(self.forger.genuine), NOW)
        self.codes: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        self.largest_bytes = 0

    @property
    def tokens(self) -> int:
        """How many were presented."""
        return self.codes.total()

    def present(self, token: str) -> None:
        """Present one forgery; AssertionError if it is taken, fails otherwise than as a refusal, or costs too much."""
        weigh = self.tokens % WEIGHED == 0
        if weigh:
            tracemalloc.start()
        began = time.thread_time()
        try:
            self._judge(token)
            took = time.thread_time() - began
            if weigh:
                self.largest_bytes = max(self.largest_bytes, tracemalloc.get_traced_memory()[1])
        finally:
            if weigh:
                tracemalloc.stop()
        if not weigh:
            self.slowest_seconds = max(self.slowest_seconds, took)
        assert self.slowest_seconds <= MAX_SECONDS, f"{took} s for {token!r}"
        assert self.largest_bytes <= MAX_BYTES, f"{self.largest_bytes} bytes for {token!r}"

    def _judge(self, token: str) -> None:
        try:
            self._verifier.verify(UnverifiedToken(token), NOW)
        except TokenRefused as error:
            self.codes[error.code] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for {token!r}") from error
        else:
            raise AssertionError(f"accepted: {token!r}")
