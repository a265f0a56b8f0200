"""An issuer that the identity tests trust, by name, and a source of its keys."""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.model import UnverifiedToken
from bridge.oidc.refusal import token_refused

ISSUER = "https://gitlab.realm.test"
AUDIENCE = "https://bridge.realm.test"
NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
KID = "key-1"

Mint = Callable[..., UnverifiedToken]


def b64url(data: bytes) -> str:
    """Unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Keys:
    """A key source with fixed keys, which counts how often it is asked."""

    def __init__(self, keys: Mapping[tuple[str, str], rsa.RSAPublicKey]) -> None:
        self.keys = keys
        self.asked: list[tuple[str, str]] = []

    def key(self, issuer: str, kid: str) -> rsa.RSAPublicKey:
        """The key, or the refusal that the real source gives."""
        self.asked.append((issuer, kid))
        if (issuer, kid) not in self.keys:
            raise token_refused("unknown_key", "not here")
        return self.keys[issuer, kid]
