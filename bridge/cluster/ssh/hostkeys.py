"""What the login nodes are known by: pinned host keys, or certificates of a pinned authority (T33).

Nothing is ever added: no key on first use, none that a node announces (UpdateHostKeys), and none from DNS (SSHFP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import paramiko

from bridge.cluster.ssh.endpoint import Endpoint
from bridge.cluster.ssh.hostcert import CERTIFIED, NotCertified, authority_of, require_certified
from bridge.cluster.ssh.knownhosts import Line, Marker, Unreadable, parse
from bridge.errors import Defect

_KINDS: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
"""Every algorithm with which a node may sign the key exchange; none with SHA-1."""


def _now() -> datetime:
    return datetime.now(UTC)


class HostKeys:
    """The keys and authorities of a file in the format of sshd(8), SSH_KNOWN_HOSTS; read once."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        """Read the file; raises Defect ``ssh.known_hosts`` where that can't be done, or a line of it is none."""
        self._clock = clock
        try:
            self._lines = parse(path.read_text("ascii"))
        except (OSError, UnicodeDecodeError, Unreadable) as error:
            raise Defect(
                "ssh.known_hosts",
                "The bridge has no usable list of the login nodes' host keys.",
                "An operator repairs the known_hosts file in the bridge's settings.",
                path=str(path),
                why=str(error),
            ) from error

    def algorithms(self, endpoint: Endpoint) -> list[str]:
        """Give the host key algorithms for the offer in the key exchange, the ones that can succeed first.

        Certificates are offered for a node that has an authority only. Types that are not known stay in the offer, so
        that a node with a foreign key is named as that and not as an old server.
        """
        certified = [f"{kind}{CERTIFIED}" for kind in _KINDS] if self._of(endpoint, Marker.AUTHORITY) else []
        pinned = {kind for line in self._of(endpoint, Marker.PINNED) for kind in _algorithms(line.kind)}
        return [*certified, *sorted(_KINDS, key=lambda kind: kind not in pinned)]

    def require(self, endpoint: Endpoint, key: paramiko.PKey) -> None:
        """Pass if this key is the node's; raises Defect ``ssh.host_key``.

        A certificate that is no good leaves its key what it is without it, as in OpenSSH: pinned, or unknown.
        """
        shown, certificate = key.asbytes(), _certificate(key)
        revoked = {line.key for line in self._of(endpoint, Marker.REVOKED)}
        why = "the key is not pinned"
        try:
            if shown in revoked or (certificate is not None and authority_of(certificate) in revoked):
                raise _wrong_key(endpoint, key, "the key, or its authority's, is revoked")
            if certificate is not None:
                authorities = {line.key for line in self._of(endpoint, Marker.AUTHORITY)}
                require_certified(certificate, shown, endpoint.host, self._clock(), authorities)
                return
        except NotCertified as error:
            why = f"the certificate is no good: {error}"
        if shown not in {line.key for line in self._of(endpoint, Marker.PINNED)}:
            raise _wrong_key(endpoint, key, why)

    def _of(self, endpoint: Endpoint, marker: Marker) -> list[Line]:
        return [line for line in self._lines if line.marker is marker and line.names(endpoint.known_as)]


def _algorithms(kind: str) -> Iterable[str]:
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)


def _certificate(key: paramiko.PKey) -> bytes | None:
    """Give the blob of the certificate in which the key came, if it came in one; paramiko checks nothing of it."""
    public = key.public_blob
    return None if public is None else bytes(public.key_blob)


def _wrong_key(endpoint: Endpoint, key: paramiko.PKey, why: str) -> Defect:
    return Defect(
        "ssh.host_key",
        "The login node did not show the host key that it is known by.",
        "Do not retry; an operator finds out whether the node was reinstalled or someone is in between.",
        host=endpoint.host,
        fingerprint=key.fingerprint,
        why=why,
    )
