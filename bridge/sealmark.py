"""Remembers the newest head of the register outside the database, so that an older database is noticed.

Each broker has a file of its own, in a directory where only the broker writes.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from bridge.errors import Defect, Outage
from bridge.register import FIRST_REVISION, RegisterHead

_FORM: Final = re.compile(r"([0-9]{1,19}) ([0-9a-f]{64})\n")
_MAX_BYTES: Final = 128
_NONE: Final = RegisterHead(FIRST_REVISION, b"")


class RevisionMark:
    """The newest head that this broker has seen; not safe to use from several threads at once."""

    def __init__(self, path: Path) -> None:
        """Read the file; one that is not there is that of a broker that has seen nothing.

        Raises Defect ``register.mark`` where it can't be read, is none, or others than its owner may write it.
        """
        self._path = path
        self._seen = self._written = _stored(path)

    @property
    def revision(self) -> int:
        """The revision of the newest head."""
        return self._seen.revision

    def reach(self, head: RegisterHead) -> None:
        """Take down ``head``, whose seal is good.

        Raises Defect ``register.rolled_back`` where a newer one was seen, or another one of the same revision, and
        Outage ``register.mark_unwritten`` where the file can't be written; the head counts as seen then, too.
        """
        if head.revision < self._seen.revision or (head.revision == self._seen.revision and head != self._seen):
            raise rolled_back(head.revision, self._seen.revision)
        self._seen = head
        if self._written != head:
            self._store(head)
            self._written = head

    def _store(self, head: RegisterHead) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            try:
                _write(draft, f"{head.revision} {head.seal.hex()}\n")
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)
            _sync_directory(self._path.parent)
        except OSError as error:
            raise Outage(
                "register.mark_unwritten",
                "The bridge can't write down which state of its register is the newest.",
                "Look at the disk, and at the rights of the broker's state directory.",
                errno=error.errno,
            ) from error


def rolled_back(revision: int, seen: int) -> Defect:
    """``register.rolled_back``"""
    return Defect(
        "register.rolled_back",
        "The database is older than what this bridge has worked with before.",
        "If it was restored from a backup on purpose, see docs/security.md for how to take it over.",
        revision=revision,
        seen=seen,
    )


def _stored(path: Path) -> RegisterHead:
    try:
        with path.open("rb") as file:
            exposed = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o022
            text = file.read(_MAX_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return _NONE
    except OSError as error:
        raise _unreadable(reason=type(error).__name__) from error
    found = _FORM.fullmatch(text)
    if found is None or exposed:
        raise _unreadable(reason="others can write it" if exposed else "form")
    return RegisterHead(int(found[1]), bytes.fromhex(found[2]))


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Make a rename last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unreadable(reason: str) -> Defect:
    return Defect(
        "register.mark",
        "The file with the newest state of the register can't be read.",
        "Find out who wrote to it; remove it only once the register is known to be good, see docs/security.md.",
        reason=reason,
    )
