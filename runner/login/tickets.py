"""The verbs that place and remove the run's ticket cache on the login node."""

from __future__ import annotations

import os
from typing import Any

from runner.login import beneath
from runner.login.failures import VerbFailed, malformed
from runner.login.request import Request
from runner.login.user import User

_VERSION_4 = b"\x05\x04"
"""First bytes of a credential cache file (MIT krb5 docs, "Credential cache file format")."""


def tickets(request: Request, _user: User) -> dict[str, Any]:
    """Write the data as the cache ``ccache`` (``FILE:/path``), mode 0600, replacing what was there."""
    if not request.data.startswith(_VERSION_4):
        raise malformed("the data is not a credential cache of version 4")
    directory, name = _open_directory(request.text("ccache"))
    try:
        beneath.replace_file(directory, name, request.data, 0o600, sync=True)
    except (PermissionError, IsADirectoryError) as error:
        raise _foreign() from error
    finally:
        os.close(directory)
    return {}


def drop_tickets(request: Request, user: User) -> dict[str, Any]:
    """Remove the cache ``ccache``; returns whether there was one."""
    return {"removed": remove_cache(request.text("ccache"), user)}


def remove_cache(ccache: str, user: User) -> bool:
    """Remove a cache of the user's (``FILE:/path``), a link itself and not its target; False where there is none."""
    directory, name = _open_directory(ccache)
    try:
        if os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid != user.uid:
            raise _foreign()
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    except (PermissionError, IsADirectoryError) as error:
        raise _foreign() from error
    finally:
        os.close(directory)
    return True


def _open_directory(ccache: str) -> tuple[int, str]:
    if not ccache.startswith("FILE:/"):
        raise malformed("ccache must be FILE:/path")
    path = ccache.removeprefix("FILE:")
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
