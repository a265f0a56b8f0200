"""Stands in the realm's bridge host before a broker's socket: a broker answers only processes that it can see there."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from pathlib import Path


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _converse(outside: socket.socket, broker: str) -> None:
    with outside, socket.socket(socket.AF_UNIX) as inside:
        try:
            inside.connect(broker)
        except OSError:
            return
        there = threading.Thread(target=_pass_on, args=(outside, inside))
        there.start()
        _pass_on(inside, outside)
        there.join()


def main(listening: str, broker: str) -> None:
    """Pass every connection of the first socket on to the second."""
    Path(listening).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(listening)
        server.listen(64)
        while True:
            threading.Thread(target=_converse, args=(server.accept()[0], broker), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
