"""Has a user's ccache collection filled and cleared by a child that is the user: kernel keyring, or KCM daemon.

Keys in a persistent keyring, and caches of a KCM daemon, belong to who made them. And what is there is the user's to
bend: so root reads nothing of it, and the child is bounded in time and says nothing but an exit code, which decides
about that user's own tickets only.
"""

from __future__ import annotations

import contextlib
import ctypes
import pwd
import subprocess
import sys
from pathlib import Path

from runner.node import collection_child
from runner.node.place import BadPlace
from runner.node.tools import ENVIRONMENT, KILL_SECONDS

CHILD_SECONDS = 5.0

_KEYUTILS = ctypes.CDLL("libkeyutils.so.1", use_errno=True)
"""libkrb5 needs it for keyrings, so it is there."""

_WHY = {
    collection_child.NOT_THE_USER: "the child did not become the user",
    collection_child.NO_ROOM: "they do not fit into the user's key quota (kernel.keys.maxbytes, maxkeys)",
    collection_child.NO_DAEMON: "no KCM daemon answers on this node",
    collection_child.UNLIKE: "what was written reads otherwise",
    collection_child.LEFT: "a cache of ours can't be removed",
}


class Collection:
    """One user's ticket caches in the kernel (``KEYRING:persistent:<uid>``) or with the KCM daemon (``KCM:<uid>``)."""

    def __init__(self, ccache: str, collections: list[str], uid: int) -> None:
        """Take the collection's name as the bridge gives it; raises BadPlace.

        It must be one of ``collections``, in which ``%{uid}`` stands for the user's: what a bridge that was taken over
        says must not reach other keyrings or other people's caches.
        """
        allowed = [entry.replace("%{uid}", str(uid)) for entry in collections]
        if ccache not in allowed:
            raise BadPlace("the bridge named a ticket cache outside of cache_collections")
        self._name = ccache
        self._uid = uid

    def write(self, data: bytes) -> None:
        """Put the tickets in and take our older ones out; a login of the user's stays as it is. Raises BadPlace."""
        self._child("put", data, (collection_child.DONE,))

    def remove(self) -> bool:
        """Take our tickets out, and only them; tells whether there were any. Raises BadPlace where some may be left."""
        wanted = (collection_child.DONE, collection_child.NOTHING_THERE)
        return self._child("remove", b"", wanted) == collection_child.DONE

    def _child(self, verb: str, data: bytes, wanted: tuple[int, ...]) -> int:
        """Run the child as the user and nobody else, without root's session keyring, which a child would share.

        The program goes as text, so that the user needs no way to its file.
        """
        try:
            gid = pwd.getpwuid(self._uid).pw_gid
        except KeyError:
            raise BadPlace(f"uid {self._uid} has no account on this node") from None
        program = Path(collection_child.__file__).read_text(encoding="utf-8")
        process = None
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", program, verb, self._name, str(self._uid), str(gid)],
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                user=self._uid,
                group=gid,
                extra_groups=[],
                start_new_session=True,
                preexec_fn=_join_new_session_keyring,  # noqa: PLW1509 - the node agent has one thread
            )
            process.communicate(data, timeout=CHILD_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            if process is not None:
                _give_up(process)
            raise BadPlace(f"tickets in {self._name}: {type(error).__name__}") from error
        if process.returncode not in wanted:
            why = _WHY.get(process.returncode, f"libkrb5 or the child failed ({process.returncode})")
            raise BadPlace(f"tickets in {self._name}: {why}")
        return process.returncode


def _join_new_session_keyring() -> None:
    """Let go of root's (keyctl_join_session_keyring(3)); before exec, so that the user can't get hold of the child."""
    if _KEYUTILS.keyctl_join_session_keyring(None) < 0:
        raise OSError(ctypes.get_errno(), "no session keyring")


def _give_up(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait(KILL_SECONDS)
