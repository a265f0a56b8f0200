"""A user's persistent keyring for a test: nobody else's while it lasts, and empty before and after.

The kernel keeps one for each uid, whatever the namespace of the process; so tests of one machine take turns.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_SECONDS = 240.0
_PROCESS_KEYRING = -2
"""KEY_SPEC_PROCESS_KEYRING, keyctl(2)."""


@contextmanager
def own_keyring(uid: int) -> Iterator[None]:
    """Keep other tests off the keyring of `uid`."""
    with socket.socket(socket.AF_UNIX) as turn:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _taken(turn, f"\0ci-bridge-test-keyring-{uid}"):
            assert time.monotonic() < deadline, "another test does not let go of the keyring"
            time.sleep(0.1)
        _clear(uid)
        try:
            yield
        finally:
            _clear(uid)


def _taken(turn: socket.socket, name: str) -> bool:
    try:
        turn.bind(name)
    except OSError:
        return False
    return True


def _clear(uid: int) -> None:
    """Empty it as the user: to root it is not open."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            keys = ctypes.CDLL("libkeyutils.so.1", use_errno=True)
            keys.keyctl_join_session_keyring(None)
            ring = keys.keyctl_get_persistent(-1, _PROCESS_KEYRING)
            os._exit(1 if ring < 0 or keys.keyctl_clear(ring) < 0 else 0)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the keyring of uid {uid} can't be emptied"
