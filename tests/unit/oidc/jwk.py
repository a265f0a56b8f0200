"""Keys of an issuer, and how GitLab publishes them."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.unit.oidc.issuer_example import b64url


def new_key() -> rsa.RSAPrivateKey:
    """A fresh signing key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk_of(key: rsa.RSAPublicKey, kid: str) -> dict[str, Any]:
    """The public half as an entry of a key set (RFC 7517)."""
    numbers = key.public_numbers()
    return {
        "kty": "RSA",
        "kid": kid,
        "use": "sig",
        "alg": "RS256",
        "n": b64url(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
        "e": b64url(numbers.e.to_bytes(3, "big")),
    }
