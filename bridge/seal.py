"""The broker's seal on a grant: web can store what the broker decided, and can not change it.

Web writes to the same database. Were the broker to believe a row that web can write, whoever takes web could name any
account; so each recorded grant carries an HMAC under a key that only the broker has (RFC 2104, SHA-256).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from bridge.audit.ledger import Seal as Sealing
from bridge.audit.ledger import SealedGrant
from bridge.errors import Defect
from bridge.model import RunId

KEY_BYTES: Final = 32


class Seal:
    """Seals byte strings under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise Defect(
                "seal.key", "The broker's seal key is not 32 bytes long.", "Remove the file to make a new one."
            )
        self._key = key

    def make(self, *parts: str | bytes) -> bytes:
        """Return the seal of ``parts``; their boundaries are part of what is sealed."""
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            piece = part.encode() if isinstance(part, str) else part
            mac.update(len(piece).to_bytes(8, "big"))
            mac.update(piece)
        return mac.digest()

    def check(self, seal: bytes, *parts: str | bytes) -> None:
        """Pass where ``seal`` is that of ``parts``; raises Defect ``seal.broken``."""
        if not self.equal(seal, self.make(*parts)):
            raise Defect(
                "seal.broken",
                "What the database says of this run is not what the broker decided.",
                "Stop the bridge and look for who changed the database; then report the reference.",
            )

    @staticmethod
    def equal(one: bytes, other: bytes) -> bool:
        """Whether two seals are the same, in a time that does not tell where they differ."""
        return hmac.compare_digest(one, other)


class GrantSeal:
    """Seals a run's grant together with its number, attempt and end."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def maker(self, not_after: datetime) -> Sealing:
        """Return what the ledger calls, inside its transaction, to seal the grant of a run that ends then."""

        def make(run_id: RunId, attempt: int, grant_json: bytes) -> bytes:
            return self._seal.make(*_parts(run_id, attempt, grant_json, not_after))

        return make

    def check(self, sealed: SealedGrant, not_after: datetime) -> None:
        """Pass where the row is what this broker recorded; raises Defect ``seal.broken``."""
        self._seal.check(sealed.seal, *_parts(sealed.run_id, sealed.attempt, sealed.grant_json, not_after))


def _parts(run_id: RunId, attempt: int, grant_json: bytes, not_after: datetime) -> tuple[str | bytes, ...]:
    return run_id, str(attempt), grant_json, str(int(not_after.timestamp()))


def load_or_make_key(path: Path) -> bytes:
    """Read the key at ``path``, or make one there with mode 0600 on the broker's first start.

    Raises Defect ``seal.key_exposed`` where others than the owner have access to the file.
    """
    if not path.exists():
        _make_key(path)
    with path.open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise Defect(
                "seal.key_exposed",
                "Others than the broker have access to its seal key.",
                "Look at what was admitted since it lay open, then remove the file; the next start makes a new key.",
            )
        return file.read()


def _make_key(path: Path) -> None:
    """Put a new key at ``path``, all of it or nothing; one that came to be there meanwhile stays."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
