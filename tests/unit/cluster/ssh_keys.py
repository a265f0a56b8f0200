"""Keys and certificates of hosts, good ones and others, for tests."""

from __future__ import annotations

import base64
import io
import time
from typing import Any

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import SSHCertificateBuilder, SSHCertificateType

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def to_paramiko(key: PrivateKey) -> paramiko.PKey:
    """The same key for paramiko."""
    form, plain = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    text = io.StringIO(key.private_bytes(serialization.Encoding.PEM, form, plain).decode())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return paramiko.Ed25519Key.from_private_key(text)
    kind = paramiko.RSAKey if isinstance(key, rsa.RSAPrivateKey) else paramiko.ECDSAKey
    return kind.from_private_key(text)


def host_key() -> paramiko.PKey:
    """A new Ed25519 key."""
    return to_paramiko(ed25519.Ed25519PrivateKey.generate())


def public_line(key: paramiko.PKey) -> str:
    """``type base64``, as in known_hosts."""
    return f"{key.get_name()} {key.get_base64()}"


def certificate(authority: PrivateKey, key: PrivateKey, **changes: Any) -> bytes:
    """The blob of a certificate for ``key`` as login.example.org's, valid now, but for ``changes``.

    ``valid`` is from when to when, in seconds from now.
    """
    begin, end = (int(time.time()) + seconds for seconds in changes.get("valid", (-60, 3600)))
    builder = (
        SSHCertificateBuilder()
        .public_key(changes.get("public_key", key.public_key()))
        .serial(1)
        .type(changes.get("type", SSHCertificateType.HOST))
        .key_id(b"login")
        .valid_after(changes.get("valid_after", begin))
        .valid_before(changes.get("valid_before", end))
    )
    principals = changes.get("principals", [b"login.example.org"])
    builder = builder.valid_principals(principals) if principals else builder.valid_for_all_principals()  # type: ignore[no-untyped-call]
    for name in changes.get("critical", ()):
        builder = builder.add_critical_option(name, b"")
    return base64.b64decode(builder.sign(authority).public_bytes().split()[1])


def shown(key: PrivateKey, blob: bytes) -> paramiko.PKey:
    """What the transport makes of a host key message with this certificate."""
    made = to_paramiko(key)
    made.load_certificate(paramiko.Message(blob))
    return made
