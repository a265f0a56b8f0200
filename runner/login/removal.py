"""Removes a directory tree that its owner may have filled with anything, without following a link out of it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from runner.login.beneath import DIRECTORY

MAX_DEPTH = 64
"""Deeper directories are moved up first, so that neither descriptors nor the stack run out."""

ATTEMPTS = 20
"""How often a tree is gone through while something still adds to it."""


def remove_tree(parent: int, name: str) -> None:
    """Remove ``name`` in the directory ``parent`` with all that is in it; a link is removed itself, not its target.

    Raises OSError where something in it can't be removed.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _remove(parent, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == ATTEMPTS:
                raise
    return None


def _remove(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        with _opened(parent, name) as top:
            _empty(top, top, 0)
        os.rmdir(name, dir_fd=parent)


def _empty(directory: int, top: int, depth: int) -> None:
    """Remove all entries of an open directory; what lies deeper than MAX_DEPTH is moved into ``top`` for later."""
    with os.scandir(directory) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        with contextlib.suppress(FileNotFoundError):
            if not is_directory:
                os.unlink(name, dir_fd=directory)
            elif depth >= MAX_DEPTH:
                os.rename(name, f"deep-{os.urandom(8).hex()}", src_dir_fd=directory, dst_dir_fd=top)
            else:
                with _opened(directory, name) as child:
                    _empty(child, top, depth + 1)
                os.rmdir(name, dir_fd=directory)


@contextlib.contextmanager
def _opened(parent: int, name: str) -> Iterator[int]:
    """Open a directory without following a link; one that its owner closed to himself is opened up first."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o700 != 0o700 and status.st_uid == os.geteuid():
            # fchmod(2) does not take an O_PATH descriptor; its link in /proc leads to the very same inode.
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        descriptor = os.open(f"/proc/self/fd/{handle}", DIRECTORY)
    finally:
        os.close(handle)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
