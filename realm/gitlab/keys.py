"""The instance's RS256 signing keys: published, rotated and withdrawn."""

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa


def b64url(data: bytes) -> str:
    """Base64url without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True)
class SigningKey:
    """One RSA key; its kid is the RFC 7638 thumbprint of the public part."""

    private: rsa.RSAPrivateKey = field(repr=False)
    kid: str
    jwk: dict[str, str]

    @classmethod
    def generate(cls) -> "SigningKey":
        """A fresh 2048-bit key."""
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = private.public_key().public_numbers()
        core = {"e": _uint(numbers.e), "kty": "RSA", "n": _uint(numbers.n)}
        # RFC 7638 section 3: members in lexical order, no white space.
        kid = b64url(hashlib.sha256(json.dumps(core, separators=(",", ":"), sort_keys=True).encode()).digest())
        return cls(private, kid, {**core, "kid": kid, "use": "sig", "alg": "RS256"})

    def sign(self, data: bytes) -> bytes:
        """RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518 section 3.3)."""
        return self.private.sign(data, padding.PKCS1v15(), hashes.SHA256())

    def public_pem(self) -> bytes:
        """SubjectPublicKeyInfo as PEM, which an algorithm-confusion attack uses as an HMAC secret."""
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


class KeySet:
    """The current signing key and every older one that is still, or no longer, published."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        first = SigningKey.generate()
        self._known = {first.kid: first}
        self._published = [first.kid]

    @property
    def current(self) -> SigningKey:
        """The key that new tokens are signed with: the newest published one."""
        with self._lock:
            return self._known[self._published[-1]]

    def rotate(self) -> SigningKey:
        """Add a new current key; older ones stay published, as GitLab does."""
        fresh = SigningKey.generate()
        with self._lock:
            self._known[fresh.kid] = fresh
            self._published.append(fresh.kid)
        return fresh

    def withdraw(self, kid: str) -> None:
        """Stop publishing a key; it can still be asked for by kid to sign a forged token.

        Raises:
            ValueError: the key is unknown or is the last one.
        """
        with self._lock:
            if kid not in self._published or len(self._published) == 1:
                raise ValueError("only a published key can be withdrawn, and never the last one: rotate first")
            self._published.remove(kid)

    def find(self, kid: str) -> SigningKey | None:
        """A key by kid, published or withdrawn."""
        with self._lock:
            return self._known.get(kid)

    def jwks(self) -> dict[str, Any]:
        """The published JSON Web Key Set (RFC 7517 section 5)."""
        with self._lock:
            return {"keys": [self._known[kid].jwk for kid in self._published]}


def _uint(number: int) -> str:
    return b64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))
