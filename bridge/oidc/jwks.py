"""From the bytes of a JSON Web Key Set (RFC 7517) to RSA public keys, or to the reason why the set can not be trusted.

A set is taken whole or not at all: a weak, private, symmetric or doubled key means that something is wrong at the
issuer. Keys of other public kinds (EC, OKP, or for encryption) are passed over, for an issuer may add them some day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from bridge.errors import TokenRefused
from bridge.oidc.strict_json import AmbiguousJson, loads_object
from bridge.oidc.token import ALGORITHM, KID, decode_base64url

MAX_KEYS: Final = 16
MIN_BITS: Final = 2048
MAX_BITS: Final = 8192
"""A verification with 8192 bits takes 16 times that with 2048; more would be a lever for a denial of service."""
EXPONENT: Final = 65537

_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_PASSED_OVER: Final = frozenset({"EC", "OKP"})


class BadKeySet(ValueError):
    """The key set of an issuer can not be trusted; the text says why."""


def parse_key_set(data: bytes) -> Mapping[str, RSAPublicKey]:
    """The signing keys of a key set by their ``kid``; raises BadKeySet."""
    try:
        entries = loads_object(data).get("keys")
    except AmbiguousJson as error:
        raise BadKeySet(str(error)) from error
    if type(entries) is not list or not 1 <= len(entries) <= MAX_KEYS:
        raise BadKeySet(f"keys is not a list of 1 to {MAX_KEYS}")
    keys: dict[str, RSAPublicKey] = {}
    for entry in entries:
        if not _is_for_signatures(entry):
            continue
        kid, key = _kid(entry), _rsa_key(entry)
        if kid in keys:
            raise BadKeySet(f"key {kid} is there twice")
        keys[kid] = key
    if not keys:
        raise BadKeySet("no RSA key for signatures")
    return MappingProxyType(keys)


def thumbprint(key: RSAPublicKey) -> str:
    """Hex SHA-256 of the modulus, big-endian: names a key in the audit log whatever its kid."""
    modulus = key.public_numbers().n
    return hashlib.sha256(modulus.to_bytes((modulus.bit_length() + 7) // 8, "big")).hexdigest()


def _is_for_signatures(entry: Any) -> bool:
    if type(entry) is not dict:
        raise BadKeySet("a key is not an object")
    if entry.keys() & _PRIVATE_MEMBERS:
        raise BadKeySet("a private or symmetric key was published")
    if entry.get("kty") in _PASSED_OVER or entry.get("use") == "enc":
        return False
    if entry.get("kty") != "RSA":
        raise BadKeySet("kty is not RSA")
    if entry.get("use", "sig") != "sig" or entry.get("alg", ALGORITHM) != ALGORITHM:
        raise BadKeySet(f"use is not sig, or alg is not {ALGORITHM}")
    operations = entry.get("key_ops", ["verify"])
    if type(operations) is not list or "verify" not in operations:
        raise BadKeySet("key_ops does not list verify")
    return True


def _kid(entry: Mapping[str, Any]) -> str:
    kid = entry.get("kid")
    if type(kid) is not str or KID.fullmatch(kid) is None:
        raise BadKeySet("kid is missing or malformed")
    return kid


def _rsa_key(entry: Mapping[str, Any]) -> RSAPublicKey:
    modulus, exponent = _unsigned(entry.get("n")), _unsigned(entry.get("e"))
    if exponent != EXPONENT:
        raise BadKeySet(f"e is not {EXPONENT}")
    if not MIN_BITS <= modulus.bit_length() <= MAX_BITS:
        raise BadKeySet(f"n has {modulus.bit_length()} bits, not {MIN_BITS} to {MAX_BITS}")
    if modulus % 2 == 0:
        raise BadKeySet("n is even")
    try:
        return RSAPublicNumbers(e=exponent, n=modulus).public_key()
    except ValueError as error:
        raise BadKeySet("n and e are not an RSA key") from error


def _unsigned(text: Any) -> int:
    """A Base64urlUInt (RFC 7518 section 2)."""
    if type(text) is not str or not text:
        raise BadKeySet("n or e is missing")
    try:
        return int.from_bytes(decode_base64url(text), "big")
    except TokenRefused as error:
        raise BadKeySet("n or e is not base64url") from error
