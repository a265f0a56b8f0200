"""Writes down what a process of the bridge sends, before TLS and SSH encrypt it: runs inside that process, patched in.

Three seams, each the lowest that Python has: every write of a ``socket.socket`` (so the broker's and web's unix
sockets, and whatever would leave in clear), every write into a TLS session of the ``ssl`` module (web's answers are
uvicorn's, on an ``SSLObject``), and every SSH packet that paramiko is about to encrypt, the data of each channel as one
stream. What C libraries send by themselves does not come by: libkrb5 to the KDC, libpq to the database, NSS to LDAP.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

DIRECTORY = "/var/lib/realm-tap"
"""Below the host's own root: it goes with the realm. Each process writes a file of its own there."""

HEAD = struct.Struct(">dHI")
"""Time of the write, length of the stream's name, length of the data; the two follow."""

_USERAUTH_REQUEST, _CHANNEL_DATA, _CHANNEL_EXTENDED_DATA = 50, 94, 95
"""RFC 4252 section 5, RFC 4254 section 5.2."""

Put = Callable[[str, bytes], None]


def to_file(role: str, directory: str = DIRECTORY) -> Put:
    """Give what appends a piece of a stream to this process's file. Raises OSError, in the process that sends.

    role: "broker" or "web"; the file is named for it.
    """
    if os.geteuid() == 0:
        Path(directory).mkdir(exist_ok=True)
        Path(directory).chmod(0o1777)
    file = os.open(
        f"{directory}/{time.time_ns()}-{role} {os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600
    )
    lock = threading.Lock()

    def put(stream: str, data: bytes) -> None:
        name = stream.encode()
        with lock:
            os.write(file, HEAD.pack(time.time(), len(name), len(data)) + name + data)

    return put


class _Names:
    """Numbers the connections, so that two never share a stream."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._numbers = itertools.count(1)
        self._known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, thing: Any, more: str = "") -> str:
        with self._lock:
            if thing not in self._known:
                self._known[thing] = f"{self._kind}{more} #{next(self._numbers)}"
            return self._known[thing]


def tap_sockets(put: Put) -> None:
    """Record what goes into sockets; ciphertext too, since nobody can say beforehand what is some."""
    names, plain = _Names("socket"), socket.socket

    def writing(method: str, joined: bool) -> None:
        original = getattr(plain, method)

        def write(self: socket.socket, data: Any, *rest: Any) -> Any:
            whole = b"".join(bytes(piece) for piece in data) if joined else bytes(data)
            name = names.of(self, f" {self.family.name}{_towards(self)}")
            if method == "sendall":
                # Before it leaves: who is killed while sending has sent some of it.
                put(name, whole)
                return original(self, data, *rest)
            sent = original(self, data, *rest)
            put(name, whole[:sent])
            return sent

        setattr(plain, method, write)

    for method, joined in (("send", False), ("sendall", False), ("sendto", False), ("sendmsg", True)):
        writing(method, joined)


def _towards(connection: socket.socket) -> str:
    """The path that a unix socket was connected to; nothing where it was accepted."""
    if connection.family != socket.AF_UNIX:
        return ""
    try:
        path = connection.getpeername()
    except OSError:
        return ""
    return f" to {path}" if isinstance(path, str) and path else ""


def tap_tls(put: Put) -> None:
    """Record what goes into TLS sessions, on either side of them."""
    names = _Names("https")

    def writing(kind: type, method: str) -> None:
        original = getattr(kind, method)

        def write(self: Any, data: Any, *rest: Any) -> Any:
            sent = original(self, data, *rest)
            put(names.of(self, " to a server" if not self.server_side else ""), bytes(data)[:sent])
            return sent

        setattr(kind, method, write)

    writing(ssl.SSLObject, "write")
    writing(ssl.SSLSocket, "write")
    writing(ssl.SSLSocket, "send")


def tap_ssh(put: Put) -> None:
    """Record what goes to login nodes: each channel's data as one stream, all other packets as another."""
    from paramiko.packet import Packetizer

    names, original = _Names("ssh"), Packetizer.send_message
    accounts: WeakKeyDictionary[Packetizer, str] = WeakKeyDictionary()

    def send_message(self: Packetizer, message: Any) -> Any:
        packet = message.asbytes()
        if packet[0] == _USERAUTH_REQUEST:
            size = int.from_bytes(packet[1:5], "big")
            accounts[self] = packet[5 : 5 + size].decode("utf-8", "replace")
        name = f"{names.of(self)} as {accounts[self]}" if self in accounts else names.of(self)
        if packet[0] == _CHANNEL_DATA:
            put(f"{name} channel {int.from_bytes(packet[1:5], 'big')}", packet[9:])
        elif packet[0] == _CHANNEL_EXTENDED_DATA:
            put(f"{name} channel {int.from_bytes(packet[1:5], 'big')} extended", packet[13:])
        else:
            put(name, packet)
        return original(self, message)

    Packetizer.send_message = send_message  # type: ignore[method-assign]


def tap_this_service() -> None:
    """Record all of it, where this process is a broker or web; the root process above them opens the directory."""
    if "bridge.cli.main" not in sys.orig_argv or not {"serve", "broker"} & set(sys.orig_argv):
        return
    web = "serve" in sys.orig_argv
    put = to_file("web" if web else "broker")
    tap_sockets(put)
    if web:
        tap_tls(put)
        tap_ssh(put)
