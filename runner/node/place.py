"""Puts ticket caches on the node and takes them away, as root in directories where users can write.

Everything goes by descriptors of directories and names in them, never along a path that a user could bend.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat

from runner.node.markers import DIRECTORY

_NAME = re.compile(r"krb5cc(_[A-Za-z0-9_.-]{1,64})?\Z")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_EXCHANGE = 2
"""linux/fs.h"""


class BadPlace(Exception):
    """A cache must not be there, or can't be put there or taken away."""


class Place:
    """One user's ticket cache on this node, of type FILE or DIR."""

    def __init__(self, ccache: str, directories: list[str], uid: int) -> None:
        """Take the cache's name as the bridge gives it (``FILE:/tmp/krb5cc_20001``); raises BadPlace.

        The directory must be one of ``directories``, and directory or name must be the uid's: what a bridge that was
        taken over says must not write elsewhere.
        """
        kind, _, path = ccache.partition(":")
        directory, _, name = path.rpartition("/")
        allowed = [entry.replace("%{uid}", str(uid)) for entry in directories]
        own = name.endswith(f"_{uid}") or str(uid) in directory.split("/")
        if kind not in ("FILE", "DIR") or directory not in allowed or not _NAME.match(name) or not own:
            raise BadPlace("the bridge named a ticket cache outside of cache_directories")
        self._kind = kind
        self._directory = directory
        self._name = name
        self._uid = uid

    def write(self, data: bytes) -> None:
        """Write the cache: new, the user's own, for nobody else, put over whatever was there at once."""
        directory = self._open()
        draft = f".{self._name}.{os.urandom(8).hex()}"
        try:
            if self._kind == "FILE":
                self._new_file(directory, draft, data)
            else:
                self._new_directory(directory, draft, data)
            self._put(directory, draft)
        finally:
            self._clear(directory, draft)
            os.close(directory)

    def remove(self) -> bool:
        """Remove the cache; a link is removed itself, what is somebody else's or of another kind stays; tells if so."""
        try:
            directory = self._open()
        except FileNotFoundError:
            return False
        try:
            status = os.stat(self._name, dir_fd=directory, follow_symlinks=False)
            if status.st_uid != self._uid or (self._kind == "FILE" and stat.S_ISDIR(status.st_mode)):
                return False
            return self._clear(directory, self._name)
        except FileNotFoundError:
            return False
        finally:
            os.close(directory)

    def _open(self) -> int:
        """Open the directory, which nobody but root and the user may be able to change the names in."""
        directory = os.open(self._directory, DIRECTORY)
        status = os.fstat(directory)
        open_to_all = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, self._uid) or open_to_all:
            os.close(directory)
            raise BadPlace(f"others can change what is in {self._directory}")
        return directory

    def _new_file(self, directory: int, name: str, data: bytes) -> None:
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, 0o600)
            os.fchown(descriptor, self._uid, -1)
            os.fsync(descriptor)

    def _new_directory(self, directory: int, name: str, data: bytes) -> None:
        """Make a collection with one cache: ``primary`` names it (MIT krb5, "ccache types", DIR)."""
        os.mkdir(name, 0o700, dir_fd=directory)
        inside = os.open(name, DIRECTORY, dir_fd=directory)
        try:
            status = os.fstat(inside)
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700 or _names(inside):
                raise BadPlace(f"somebody put another directory into {self._directory}")
            self._new_file(inside, "tkt", data)
            self._new_file(inside, "primary", b"tkt\n")
            os.fchown(inside, self._uid, -1)
        finally:
            os.close(inside)

    def _put(self, directory: int, draft: str) -> None:
        """Rename; where a directory is on either side the two change places, and the old one is cleared away after."""
        try:
            os.rename(draft, self._name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            _exchange(directory, draft, self._name)

    @staticmethod
    def _clear(directory: int, name: str) -> bool:
        """Remove a file, or a directory with the files in it; no deeper, since a user decides how deep it is."""
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=directory)
                return True
            inside = os.open(name, DIRECTORY, dir_fd=directory)
            try:
                for entry in _names(inside):
                    with contextlib.suppress(IsADirectoryError, PermissionError, FileNotFoundError):
                        os.unlink(entry, dir_fd=inside)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=directory)
        except OSError:
            return False
        return True


def _exchange(directory: int, one: str, other: str) -> None:
    """Let two names change places at one moment (renameat2(2)); raises OSError."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(directory, os.fsencode(one), directory, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]
