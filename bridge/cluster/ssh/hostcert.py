"""Checks the certificate that a login node shows (OpenSSH's PROTOCOL.certkeys; ssh-keygen(1), CERTIFICATES).

Stricter than OpenSSH where it can be: the certificate must name the host, letter by letter, and never "any host".
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from datetime import datetime
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    SSHCertPublicKeyTypes,
    load_ssh_public_identity,
)

CERTIFIED: Final = "-cert-v01@openssh.com"
"""The end of the type of every certificate."""

_RSA_BITS: Final = 2048
_SHA2: Final = (b"rsa-sha2-256", b"rsa-sha2-512")


class NotCertified(Exception):
    """The certificate does not make this key the host's; the text says why."""


def require_certified(
    certificate: bytes, key: bytes, host: str, now: datetime, authorities: Collection[bytes]
) -> SSHCertificate:
    """Return the certificate if an authority says in it that ``key`` is ``host``'s at this moment; raises NotCertified.

    ``certificate``, ``key`` and ``authorities`` are blobs as on the wire. ``key`` is the one that has signed the key
    exchange, so that nobody shows another's certificate.
    """
    found = _parse(certificate)
    if _blob(found.public_key()) != key:
        raise NotCertified("it is the certificate of another key")
    if _authority(found) not in authorities:
        raise NotCertified("its authority is none for this host")
    _require_signature(found, certificate)
    if found.type is not SSHCertificateType.HOST:
        raise NotCertified("it is the certificate of a user")
    if host.lower().encode() not in found.valid_principals:
        raise NotCertified(f"it is for {found.valid_principals!r:.200}")
    if not found.valid_after <= now.timestamp() < found.valid_before:
        raise NotCertified(f"it is valid from {found.valid_after} to {found.valid_before}")
    if found.critical_options:
        raise NotCertified(f"it has critical options, of which none is known: {sorted(found.critical_options)!r:.200}")
    return found


def authority_of(certificate: bytes) -> bytes:
    """Return the key's blob of whoever a certificate says has signed it; raises NotCertified."""
    return _authority(_parse(certificate))


def _parse(certificate: bytes) -> SSHCertificate:
    length = int.from_bytes(certificate[:4], "big")
    kind = certificate[4 : 4 + length]
    try:
        found = load_ssh_public_identity(kind + b" " + base64.b64encode(certificate))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise NotCertified(f"it can't be read: {error}") from error
    if not isinstance(found, SSHCertificate):
        raise NotCertified("it is a bare key")
    return found


def _authority(found: SSHCertificate) -> bytes:
    try:
        return _blob(found.signature_key())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise NotCertified(f"its authority's key can't be read: {error}") from error


def _require_signature(found: SSHCertificate, certificate: bytes) -> None:
    try:
        found.verify_cert_signature()
    except (InvalidSignature, ValueError) as error:
        raise NotCertified("its signature is not its authority's") from error
    authority = found.signature_key()
    if not isinstance(authority, rsa.RSAPublicKey):
        return
    # The last field is the signature: its algorithm's name, and bytes as long as the key, which were just verified.
    name = certificate[: -((authority.key_size + 7) // 8 + 4)]
    if authority.key_size < _RSA_BITS or not name.endswith(tuple(len(one).to_bytes(4, "big") + one for one in _SHA2)):
        raise NotCertified("its signature is of SHA-1, or of a short RSA key")


def _blob(key: SSHCertPublicKeyTypes) -> bytes:
    return base64.b64decode(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1])
