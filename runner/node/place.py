"""Puts ticket caches on the node and takes them away, as root in directories where users can write.

A cache belongs to (uid, node) and is shared by all of the uid's jobs that the bridge has here, so each job leaves a
marker in a directory of root's and the last one to go takes the cache along. Nothing of Slurm's is asked: its commands
must not be called from Prolog and Epilog (slurm.conf(5)).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_NAME = re.compile(r"krb5cc_[A-Za-z0-9_.-]{1,64}\Z")


class BadPlace(Exception):
    """A cache must not be written there."""


class Place:
    """One user's ticket cache on this node."""

    def __init__(self, ccache: str, directories: list[str], uid: int) -> None:
        """Take the cache's name as the bridge gives it (``FILE:/tmp/krb5cc_20001``); raises BadPlace.

        The directory must be one of ``directories`` and the name one that ends in the uid: what a bridge that was
        taken over says must not write elsewhere.
        """
        path = ccache.removeprefix("FILE:")
        directory, _, name = path.rpartition("/")
        allowed = [entry.replace("%{uid}", str(uid)) for entry in directories]
        if path == ccache or directory not in allowed or not _NAME.match(name) or not name.endswith(f"_{uid}"):
            raise BadPlace("the bridge named a ticket cache outside of cache_directories")
        self._directory = directory
        self._name = name
        self._uid = uid

    def write(self, data: bytes) -> None:
        """Write the cache: a new file, the user's own and 0600, renamed over whatever was there."""
        directory = os.open(self._directory, DIRECTORY)
        temporary = f".{self._name}.{os.urandom(8).hex()}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(descriptor, 0o600)
                os.fchown(descriptor, self._uid, -1)
                os.fsync(descriptor)
            self._move_over(directory, temporary)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
        finally:
            os.close(directory)

    def remove(self) -> bool:
        """Remove the cache; a link is removed itself, a directory or somebody else's file stays; tells if it did."""
        directory = os.open(self._directory, DIRECTORY)
        try:
            status = os.stat(self._name, dir_fd=directory, follow_symlinks=False)
            if status.st_uid != self._uid or stat.S_ISDIR(status.st_mode):
                return False
            os.unlink(self._name, dir_fd=directory)
        except FileNotFoundError:
            return False
        finally:
            os.close(directory)
        return True

    def _move_over(self, directory: int, temporary: str) -> None:
        try:
            os.rename(temporary, self._name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            aside = f"{self._name}.in-the-way.{os.urandom(4).hex()}"
            os.rename(self._name, aside, src_dir_fd=directory, dst_dir_fd=directory)
            os.rename(temporary, self._name, src_dir_fd=directory, dst_dir_fd=directory)


class Markers:
    """Remembers, per uid, which jobs have tickets on this node, in files of root's that a boot clears."""

    def __init__(self, directory: str, uid: int) -> None:
        """Take the directory below which each uid has its own."""
        self._path = Path(directory) / str(uid)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the prologs and epilogs of one uid apart: what they do to the cache happens one after the other."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._path, DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def add(self, job_id: str, ccache: str, end: int) -> None:
        """Note that a job has tickets in ``ccache`` until ``end`` (seconds since 1970)."""
        (self._path / job_id).write_text(f"{end} {ccache}\n")

    def get(self, job_id: str) -> str | None:
        """Give the name of the cache that a job has tickets in, or None."""
        entry = self._read(self._path / job_id)
        return entry[1] if entry else None

    def remove(self, job_id: str) -> None:
        """Forget a job."""
        (self._path / job_id).unlink(missing_ok=True)

    def others(self) -> bool:
        """Tell whether a job remains whose tickets are still good; what outlived its tickets does not count."""
        now = time.time()
        return any((entry := self._read(path)) is not None and entry[0] > now for path in self._path.iterdir())

    @staticmethod
    def _read(path: Path) -> tuple[int, str] | None:
        try:
            end, _, ccache = path.read_text().strip().partition(" ")
            return int(end), ccache
        except (FileNotFoundError, ValueError):
            return None
