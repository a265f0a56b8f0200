"""Walks, makes and removes directories beneath a root without ever following a link that someone put in the way.

Everything works on directory descriptors (openat(2) with O_NOFOLLOW), so a path that changes while we walk can only
make a step fail, never lead elsewhere (T35).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from runner.login.failures import VerbFailed, foreign, malformed

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_OURS = (errno.ELOOP, errno.ENOTDIR)


def check_name(name: str) -> str:
    """Accept one component of a path; raises VerbFailed."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode(errors="surrogateescape")) > 255:
        raise malformed("a path has a component that is not allowed")
    return name


def split_absolute(path: str) -> list[str]:
    """Split an absolute path into its components, none of them ``.`` or ``..``; raises VerbFailed."""
    if not path.startswith("/") or path == "/":
        raise malformed("a path must be absolute")
    return [check_name(part) for part in path.strip("/").split("/")]


def open_root(path: str, uid: int) -> int:
    """Open a root that the site's configuration names; links on the way to it are the site's.

    It must belong to root or to ``uid``, and where others can write, be sticky: else they could swap what is ours.
    """
    split_absolute(path)
    try:
        descriptor = os.open(path, DIRECTORY)
    except OSError as error:
        raise VerbFailed(
            "workspace.no_root", f"{path} can't be opened: {error.strerror}.", "Ask the cluster's administrator."
        ) from error
    status = os.fstat(descriptor)
    open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, uid) or open_to_others:
        os.close(descriptor)
        raise VerbFailed(
            "workspace.unsafe_root",
            f"{path} must belong to root or to the user, and be sticky if others may write.",
            "Ask the cluster's administrator.",
        )
    return descriptor


def open_own(parent: int, name: str, uid: int, *, make: bool = False) -> int:
    """Open the directory ``name`` in the directory ``parent``; it must be a directory of ``uid`` and no link.

    With ``make`` it is made if missing, and its mode is set to 0700. Raises VerbFailed ``workspace.foreign``, and
    FileNotFoundError where it is missing.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(check_name(name), 0o700, dir_fd=parent)
    try:
        descriptor = os.open(check_name(name), DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except PermissionError as error:
        raise foreign(name) from error
    except OSError as error:
        if error.errno in _NOT_OURS:
            raise foreign(name) from error
        raise
    status = os.fstat(descriptor)
    if status.st_uid != uid:
        os.close(descriptor)
        raise foreign(name)
    if make and stat.S_IMODE(status.st_mode) != 0o700:
        os.fchmod(descriptor, 0o700)
    return descriptor


@contextlib.contextmanager
def walk(root: str, parts: list[str], uid: int, *, make: bool = False) -> Iterator[int]:
    """Open ``root`` and then each of ``parts`` beneath it; yields the last descriptor, closed afterwards."""
    descriptor = open_root(root, uid)
    try:
        for name in parts:
            following = open_own(descriptor, name, uid, make=make)
            os.close(descriptor)
            descriptor = following
        yield descriptor
    finally:
        os.close(descriptor)


def replace_file(directory: int, name: str, data: bytes, mode: int, *, sync: bool = False) -> None:
    """Write a file beside ``name`` and rename it over; what was there before is replaced, never written through.

    ``sync``: have it on the disk before it takes the name.
    """
    temporary = f".{name[:200]}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fchmod(descriptor, mode)
            if sync:
                os.fsync(descriptor)
        os.rename(temporary, check_name(name), src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
