"""Who is on the other end of the broker's unix socket, as the kernel says it (unix(7), SO_PEERCRED and SO_PEERPIDFD).

What the kernel took down when the peer connected can't be forged, but it can grow old: the process may end and leave
the connection to one that it had forked or sent the descriptor to, its number may be given to another process, and a
process of root's may become somebody else. So a peer is held by a pidfd, which never refers to another process, and
looked at again before anything is done for it and before it gets its answer.

This tells users apart, and processes in time; it does not tell programs of one user apart. Whoever runs as an allowed
user is that user, whatever it executes.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_UCRED: Final = struct.Struct("3i")
_DESCRIPTOR: Final = struct.Struct("i")

SO_PEERPIDFD: Final = 77
"""asm-generic/socket.h, Linux 6.5; Python has no name for it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected, as it was at that moment."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the credentials that the kernel took down when the peer connected; they can't be forged."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return Peer(*_UCRED.unpack(raw))


class HeldPeer:
    """The process that connected, kept apart from every later one; close it after use."""

    def __init__(self, connection: socket.socket) -> None:
        """Take hold of the peer of a connected unix socket; raises OSError where it is gone or not of our namespace.

        Before Linux 6.5 the process is found by its number: one that got the number between connect and now is not
        told from the peer, unless it is of another user. The same start as an allowed user is needed for that.
        """
        self.peer: Final = peer_of(connection)
        if self.peer.pid <= 0:
            raise ProcessLookupError(errno.ESRCH, "the peer is in a PID namespace that can't be seen from here")
        self._pidfd = _pidfd_of(connection, self.peer.pid)

    def is_the_same(self) -> bool:
        """Tell whether the process still lives, and still acts as the user as which it connected."""
        try:
            # The owner of /proc/PID is the process's effective user, also where it is not dumpable (proc(5)).
            owner = Path(f"/proc/{self.peer.pid}").stat().st_uid
        except OSError:
            return False
        # In this order: a pidfd of a process that lives now proves that the number was its own a moment ago.
        return self._lives() and owner == self.peer.uid

    def _lives(self) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return poll.poll(0) == []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._pidfd)


def can_see_processes() -> bool:
    """Tell whether peers can be held here: the kernel has pidfds (Linux 5.3), and /proc shows others' processes.

    proc(5), hidepid; systemd.exec(5), ProtectProc=.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
        return Path("/proc/1").is_dir()
    except OSError:
        return False


def _pidfd_of(connection: socket.socket, pid: int) -> int:
    try:
        (descriptor,) = _DESCRIPTOR.unpack(connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, _DESCRIPTOR.size))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        return os.pidfd_open(pid)
    return int(descriptor)
