"""Addresses that are no KDC, each in its own way, on a host of the realm; and a krb5.conf that names them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.kerberos.deadline import DEFAULT_SECONDS
from realm import Realm
from realm.etc import krb5_conf
from realm.topology import spec

LIVING = f"{spec('kdc').address}:88"
_HOST = "mds1"
_FILLERS = 4

BOUND_SECONDS = 2 * DEFAULT_SECONDS - 0.5
"""One deadline of the bridge's and what a machine under load adds to it, but never two deadlines in a row."""

KINDS = ("refuses", "takes no connection", "says nothing", "hangs up", "no such host")


@contextmanager
def dead_kdc(realm: Realm, kind: str) -> Iterator[str]:
    """Give ``address:port`` of something that is no KDC."""
    host = realm.host(_HOST)
    with ExitStack() as open_until_then, host.network():
        if kind == "no such host":
            yield "10.113.0.99:88"
        elif kind == "refuses":
            with socket.create_server((host.address, 0)) as taken:
                port = taken.getsockname()[1]
            yield f"{host.address}:{port}"
        elif kind == "hangs up":
            yield _address(open_until_then.enter_context(_hanging_up(host.address)))
        else:
            server = open_until_then.enter_context(socket.create_server((host.address, 0), backlog=0))
            if kind == "takes no connection":
                # A full queue: the kernel drops further SYNs, as a firewall does.
                for _ in range(_FILLERS):
                    filler = open_until_then.enter_context(socket.socket())
                    filler.setblocking(False)
                    filler.connect_ex(server.getsockname())
            else:
                server.listen(64)
            yield _address(server)


@contextmanager
def _hanging_up(address: str) -> Iterator[socket.socket]:
    """A listener whose every connection is closed at once."""
    with socket.create_server((address, 0), backlog=64) as server:

        def work() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.close()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def _address(server: socket.socket) -> str:
    host, port = server.getsockname()
    return f"{host}:{port}"


def write_conf(file: Path, kdcs: Sequence[str]) -> None:
    """Write a client's krb5.conf in which these are the realm's KDCs."""
    named = "".join(f"        kdc = {kdc}\n" for kdc in kdcs)
    file.write_text(krb5_conf().replace(f"        kdc = {LIVING}\n", named))
