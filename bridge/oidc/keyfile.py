"""Keys of a GitLab that can't be reached: a JSON Web Key Set in a file, which somebody puts there and keeps up to date.

The file is as strict a matter as an answer of the issuer. It is read again when it changes; one that can't be read or
trusted changes nothing and is reported. These keys do not age: whoever chose a file has taken over to withdraw them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bridge.errors import Outage
from bridge.oidc.fetch import MAX_ANSWER_BYTES
from bridge.oidc.issuers import KeyEvents
from bridge.oidc.jwks import BadKeySet, parse_key_set, thumbprint
from bridge.oidc.refusal import token_refused

_Stamp = tuple[int, ...]
_ABSENT: Final[_Stamp] = ()


class KeyFile:
    """``oidc.fetch.KeySetFetcher`` that reads a file; for a single look, as the command line takes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fetch(self) -> Mapping[str, RSAPublicKey]:
        """The keys in the file by kid; raises BadKeySet or OSError."""
        return _read(self.path)


class FileKeys:
    """The keys of one issuer from a file; safe to use from many threads."""

    def __init__(self, issuer: str, path: Path, events: KeyEvents) -> None:
        self._issuer = issuer
        self._path = path
        self._events = events
        self._lock = threading.Lock()
        self._keys: Mapping[str, RSAPublicKey] | None = None
        self._seen: _Stamp | None = None

    def key(self, kid: str) -> RSAPublicKey:
        """The key ``kid``; raises TokenRefused ``token.unknown_key``, Outage ``issuer.keys_unreadable``."""
        with self._lock:
            before, reason = self._keys, self._reload()
            keys = self._keys
        if reason is not None:
            self._events.failed(self._issuer, reason)
        if keys is None:
            raise Outage(
                "issuer.keys_unreadable",
                "The file with GitLab's signing keys could not be read yet.",
                "Run the job again later; administrators: check the issuer's jwks_file, its form and its rights.",
                issuer=self._issuer,
            )
        if before is None or (keys is not before and _thumbprints(before) != _thumbprints(keys)):
            self._events.changed(self._issuer, _thumbprints(keys))
        if kid not in keys:
            raise token_refused("unknown_key", "kid is not in the issuer's key file", issuer=self._issuer)
        return keys[kid]

    def age_seconds(self) -> float | None:
        """Zero once a set was good: these keys do not age; None if there was none yet."""
        return None if self._keys is None else 0.0

    def _reload(self) -> str | None:
        """Read the file if it is another one than last time; why it could not be taken."""
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return None
        # From before the bytes are read, so that a change in between is seen; of a bad file too, so that it is one
        # record and not one for each token.
        self._seen = stamp
        try:
            self._keys = _read(self._path)
        except (BadKeySet, OSError) as error:
            return f"{self._path}: {getattr(error, 'strerror', None) or error}"
        return None


def _read(path: Path) -> Mapping[str, RSAPublicKey]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise BadKeySet("not a regular file")
        data = file.read(MAX_ANSWER_BYTES + 1)
    if len(data) > MAX_ANSWER_BYTES:
        raise BadKeySet(f"above {MAX_ANSWER_BYTES} bytes")
    return parse_key_set(data)


def _stamp(path: Path) -> _Stamp:
    """What changes with the file; the empty stamp where it can't be looked at."""
    try:
        status = path.stat()
    except OSError:
        return _ABSENT
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _thumbprints(keys: Mapping[str, RSAPublicKey]) -> dict[str, str]:
    return {kid: thumbprint(key) for kid, key in keys.items()}
