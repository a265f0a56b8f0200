"""Reads who listens where in a network namespace from /proc/PID/net (proc(5))."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"
_UNCONNECTED = "07"


@dataclass(frozen=True)
class Listener:
    """One listening socket: "tcp" or "udp", port, and its inode, which tells two sockets on one port apart."""

    protocol: str
    port: int
    inode: int


def listeners(pid: int, protocol: str) -> list[Listener]:
    """Every socket of `protocol` ("tcp" or "udp"), IPv4 and IPv6, that waits for clients where process `pid` lives."""
    wanted = _LISTEN if protocol == "tcp" else _UNCONNECTED
    found = []
    for table in (protocol, f"{protocol}6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text("ascii").splitlines()[1:]:
            columns = line.split()
            if columns[3] == wanted:
                found.append(Listener(protocol, int(columns[1].rpartition(":")[2], 16), int(columns[9])))
    return found
