"""The directory of one realm: its name, its lock, and who is alive in it.

A lock that PID 1 of the realm inherits says that the realm lives. Whoever finds it free may remove the directory.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path

from realm.errors import RealmError

CHECKOUT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)


def base() -> Path:
    """Where the realms of this checkout have their directories."""
    return CHECKOUT / ".realm"


def located(name: str) -> Path:
    """The default directory of the realm `name`. Raises RealmError `realm.bad_name`."""
    if not _NAME.fullmatch(name):
        remedy = "Use 1 to 40 of a-z, 0-9 and '-', not starting with '-'."
        raise RealmError("realm.bad_name", f"{name!r} cannot be the name of a realm.", remedy=remedy)
    return base() / name


def fresh_name() -> str:
    """A name that no other realm has."""
    return f"r-{os.getpid()}-{secrets.token_hex(3)}"


class Workspace:
    """A claimed directory; `lock` is the descriptor that a living realm keeps."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = _claim(directory)

    def release(self) -> None:
        """Remove the directory, if PID 1 has not, and let go of the lock."""
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self.lock)


def _claim(directory: Path) -> int:
    """Take the lock of an empty `directory`, after removing what a killed realm left. Raises `realm.exists`."""
    while True:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            remedy = f"End it with: python -m realm down --name {directory.name}; or choose another --name."
            raise RealmError("realm.exists", f"A realm lives in {directory}.", remedy=remedy) from None
        if _is_current(directory / "lock", fd):
            _empty(directory)
            return fd
        # Another process removed the directory between our open and our lock.
        os.close(fd)


def _is_current(path: Path, fd: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.name == "lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def is_alive(directory: Path) -> bool:
    """Whether a realm holds the lock of `directory`."""
    try:
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def prune() -> list[str]:
    """Remove the directories of realms that no longer live, and name them."""
    gone = []
    for lock in base().glob("*/lock"):
        if not is_alive(lock.parent):
            shutil.rmtree(lock.parent, ignore_errors=True)
            gone.append(lock.parent.name)
    return gone
