"""Short-lived values that a browser carries for us: readable by anybody, made and accepted by brokers only."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from bridge.errors import TokenRefused
from bridge.seal import Seal

MAX_CHARACTERS: Final = 4096

SealedToken = Mapping[str, str | int]


class TokenSeal:
    """Makes and opens sealed tokens; a token of one purpose is none of another."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    @staticmethod
    def nonce(size: int) -> str:
        """Return ``size`` random bytes as text."""
        return secrets.token_urlsafe(size)

    def secret(self, purpose: str, nonce: str) -> bytes:
        """Return 32 bytes that belong to the nonce, the same each time, and that nobody else can make."""
        return self._seal.make(purpose, nonce)

    def make(self, purpose: str, facts: Mapping[str, str | int], expires: datetime) -> str:
        """Return a token that says ``facts`` until then; URL-safe."""
        body = json.dumps(
            {**facts, "expires": int(expires.timestamp())}, sort_keys=True, separators=(",", ":")
        ).encode()
        return f"{_text(body)}.{_text(self._seal.make(purpose, body))}"

    def open(self, purpose: str, token: str, now: datetime) -> SealedToken:
        """Return what a token of ours says; raises TokenRefused ``flow.invalid`` or ``flow.expired``."""
        body_text, _, seal_text = token.partition(".")
        if len(token) > MAX_CHARACTERS:
            raise _invalid()
        try:
            body, seal = _data(body_text), _data(seal_text)
        except ValueError as error:
            raise _invalid() from error
        if not self._seal.equal(seal, self._seal.make(purpose, body)):
            raise _invalid()
        facts: SealedToken = json.loads(body)
        if int(facts["expires"]) <= now.timestamp():
            raise TokenRefused("flow.expired", "This took too long.", "Begin again on the page where you started.")
        return facts


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _data(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _invalid() -> TokenRefused:
    return TokenRefused(
        "flow.invalid",
        "This link or form is not one that the bridge made.",
        "Begin again on the page where you started.",
    )
