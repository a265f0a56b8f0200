"""The verbs that place and remove the run's ticket cache on the login node, and leave a person's own login alone."""

from __future__ import annotations

import os
import stat
import time
from typing import Any

from runner import ccache
from runner.login import beneath
from runner.login.failures import VerbFailed, malformed
from runner.login.request import Request
from runner.login.user import User

MAX_FOUND_BYTES = 8 * 1024 * 1024
"""Of a cache that is there already: a login may have collected hundreds of tickets."""


def tickets(request: Request, user: User) -> dict[str, Any]:
    """Write the data as the cache ``ccache`` (``FILE:/path``), mode 0600, unless the person has logged in there.

    A cache with a TGT that is good is left as it is, for it serves as well: ``login_until`` is then when that ends
    (seconds since 1970), and None where ours was put.
    """
    try:
        ccache.check(request.data, user.name)
    except ccache.BadCache as error:
        raise malformed(f"the data is not the account's service tickets: {error}") from error
    directory, name = _open_directory(request.text("ccache"))
    try:
        until = _login_until(directory, name, user)
        if until is None:
            beneath.replace_file(directory, name, request.data, 0o600, sync=True)
    except (PermissionError, IsADirectoryError) as error:
        raise _foreign() from error
    finally:
        os.close(directory)
    return {"login_until": until}


def drop_tickets(request: Request, user: User) -> dict[str, Any]:
    """Remove the cache ``ccache``; returns whether there was one, and whether a login of the person's was left."""
    return remove_cache(request.text("ccache"), user)


def remove_cache(ccache_name: str, user: User) -> dict[str, bool]:
    """Remove a cache of ours (``FILE:/path``), a link itself and not its target; says what was ``removed``, ``left``.

    Left is what holds a TGT that is good, and what can't be read as a cache: our tickets are not in it.
    """
    directory, name = _open_directory(ccache_name)
    try:
        if _login_until(directory, name, user) is not None:
            return {"removed": False, "left": True}
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return {"removed": False, "left": False}
    except (PermissionError, IsADirectoryError) as error:
        raise _foreign() from error
    except VerbFailed as failure:
        if failure.code != "tickets.unreadable":
            raise
        return {"removed": False, "left": True}
    finally:
        os.close(directory)
    return {"removed": True, "left": False}


def _login_until(directory: int, name: str, user: User) -> int | None:
    """Tell until when a TGT in the cache is good, by this machine's clock; None where there is no such TGT.

    A link of the user's is followed, as libkrb5 would; one that leads to no login of theirs can go, for nothing goes
    with it. Raises VerbFailed ``tickets.foreign`` for what is not the user's file, ``tickets.unreadable`` for one that
    can't be understood: it could be a login.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if status.st_uid != user.uid:
        raise _foreign()
    try:
        until = _tgt_end(_read(directory, name, user))
    except FileNotFoundError:
        return None
    except (VerbFailed, OSError, ccache.BadCache) as problem:
        if stat.S_ISLNK(status.st_mode):
            return None
        raise problem if isinstance(problem, VerbFailed) else _unreadable() from problem
    return until if until > time.time() else None


def _tgt_end(data: bytes) -> int:
    """Give when the last TGT in a cache ends (seconds since 1970), 0 where there is none; raises BadCache."""
    _, held = ccache.read(data, MAX_FOUND_BYTES) if data else (None, [])
    return max((ticket.end for ticket in held if ticket.is_tgt), default=0)


def _read(directory: int, name: str, user: User) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != user.uid:
            raise _foreign()
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FOUND_BYTES + 1)
    finally:
        os.close(descriptor)


def _open_directory(ccache_name: str) -> tuple[int, str]:
    if not ccache_name.startswith("FILE:/"):
        raise malformed("ccache must be FILE:/path")
    path = ccache_name.removeprefix("FILE:")
    *parts, name = beneath.split_absolute(path)
    try:
        return os.open("/" + "/".join(parts), beneath.DIRECTORY | os.O_NOFOLLOW), name
    except OSError as error:
        raise VerbFailed(
            "tickets.no_directory",
            f"The ticket cache's directory can't be opened: {error.strerror}.",
            "Check the cluster's login_ccache setting.",
        ) from error


def _foreign() -> VerbFailed:
    return VerbFailed(
        "tickets.foreign",
        "Something that is not the user's own file is in the ticket cache's place.",
        "Have the login node's administrator remove it.",
    )


def _unreadable() -> VerbFailed:
    return VerbFailed(
        "tickets.unreadable",
        "A file of the user's own that can't be read as a ticket cache is in its place.",
        "Look at it on the login node, and remove it if it is no login of yours.",
    )
