"""The verbs that make, fill and remove a run's directories: workspace, put, destroy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from runner.login import beneath
from runner.login.failures import VerbFailed, malformed
from runner.login.removal import remove_tree
from runner.login.request import Request
from runner.login.tickets import remove_cache
from runner.login.user import User

BUILDS, PRIVATE = "builds", "private"


def workspace(request: Request, user: User) -> dict[str, Any]:
    """Make the run's directories, 0700 and the user's own; returns builds_dir, cache_dir and private_dir."""
    run = _run_name(request)
    builds_root, cache_root = request.text("builds_root").rstrip("/"), request.text("cache_root").rstrip("/")
    for part in (BUILDS, PRIVATE):
        with beneath.walk(builds_root, [user.name, run, part], user.uid, make=True):
            pass
    with beneath.walk(cache_root, [user.name], user.uid, make=True):
        pass
    own = f"{builds_root}/{user.name}/{run}"
    return {
        "builds_dir": f"{own}/{BUILDS}",
        "cache_dir": f"{cache_root}/{user.name}",
        "private_dir": f"{own}/{PRIVATE}",
    }


def put(request: Request, user: User) -> dict[str, Any]:
    """Write the data to a file below a private directory, by a new file and a rename."""
    mode = request.integer("mode", 0, 0o777, default=0o600)
    if mode & 0o022:
        raise malformed("mode must not let others write")
    with open_private(request.text("path"), user) as (directory, name):
        try:
            beneath.replace_file(directory, name, request.data, mode)
        except IsADirectoryError as error:
            raise VerbFailed(
                "workspace.in_the_way", "There is a directory where a file must go.", "Remove it."
            ) from error
    return {}


def destroy(request: Request, user: User) -> dict[str, Any]:
    """Remove the run's directory and the given ticket cache; what is not there any more is fine.

    Says whether a login of the person's was ``left`` in the cache's place.
    """
    run, ccache = _run_name(request), request.optional_text("ccache")
    left = ccache is not None and remove_cache(ccache, user)["left"]
    with (
        contextlib.suppress(FileNotFoundError),
        beneath.walk(request.text("builds_root"), [user.name], user.uid) as directory,
    ):
        remove_tree(directory, run)
    return {"left": left}


@contextlib.contextmanager
def open_private(path: str, user: User) -> Iterator[tuple[int, str]]:
    """Open the directory of a path below ``<root>/<user>/<run>/private``; yields its descriptor and the last name.

    Where the root ends follows from the path itself: at the last ``<user>/<run>/private`` in it.
    """
    parts = beneath.split_absolute(path)
    for at in range(len(parts) - 4, 0, -1):
        if parts[at] == user.name and parts[at + 2] == PRIVATE:
            break
    else:
        raise VerbFailed("workspace.outside", "The path is not below a private directory.", "Use workspace first.")
    with beneath.walk("/" + "/".join(parts[:at]), parts[at:-1], user.uid) as directory:
        yield directory, parts[-1]


def _run_name(request: Request) -> str:
    run = request.text("run")
    if not (0 < len(run) <= 64 and run.isascii() and run.isalnum()):
        raise malformed("run must be 1 to 64 letters and digits")
    return run
