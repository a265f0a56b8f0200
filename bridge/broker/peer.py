"""Who is on the other end of the broker's unix socket, as the kernel says it (SO_PEERCRED, unix(7))."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

_UCRED: Final = struct.Struct("3i")


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
