"""Where the broker's socket may be: nobody but root and the broker can put another one in its place (T28)."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from bridge.errors import RequestRefused


def require_own_directories(path: Path, owners: frozenset[int]) -> None:
    """Check every directory on the way to ``path``, as it is written and as links resolve.

    Each must be of one of ``owners`` (uids) and writable for nobody else. A sticky one such as /tmp may lie on the way,
    where others can't rename what is not theirs, but may not hold the socket. Raises RequestRefused
    ``broker.socket_place``.
    """
    for directory in _directories(path):
        try:
            status = directory.stat()
        except OSError as error:
            raise _refused(directory, error.strerror or "can't be looked at") from error
        if status.st_uid not in owners:
            raise _refused(directory, f"belongs to uid {status.st_uid}")
        sticky = bool(status.st_mode & stat.S_ISVTX) and directory not in (path.parent, path.parent.resolve())
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            raise _refused(directory, "can be written to by others")


def require_private_socket(listener: socket.socket, owners: frozenset[int]) -> None:
    """Check a listening socket that somebody else made: a unix socket with a path, of ``owners``, for them alone.

    Raises RequestRefused ``broker.socket_place``.
    """
    name = listener.getsockname() if listener.family == socket.AF_UNIX else ""
    if not isinstance(name, str) or not name.startswith("/"):
        raise _refused(Path("/"), "is not where the socket is: it is no unix socket with a path")
    path = Path(name)
    try:
        status = path.lstat()
    except OSError as error:
        raise _refused(path, error.strerror or "can't be looked at") from error
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in owners:
        raise _refused(path, f"belongs to uid {status.st_uid}, or is no socket")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise _refused(path, "is open to others")


def require_listening(listener: socket.socket, web_uids: frozenset[int]) -> None:
    """Check the socket that a service manager or a supervisor passed, and the way to it.

    ``web_uids`` may own the socket, and nothing on the way to it. Raises RequestRefused ``broker.socket_place``.
    """
    ours = frozenset({0, os.geteuid()})
    require_private_socket(listener, ours | web_uids)
    require_own_directories(Path(listener.getsockname()), ours)


def _directories(path: Path) -> Iterator[Path]:
    yield from path.parents
    yield from path.parent.resolve().parents
    yield path.parent.resolve()


def _refused(path: Path, why: str) -> RequestRefused:
    return RequestRefused(
        "broker.socket_place",
        f"The broker's socket is not safe from others: {path} {why}.",
        "Put broker.socket where only root can write, such as /run/ci-bridge, with mode 0600.",
    )
