"""The broker's unix socket: one request and one reply a connection, from web's user only."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from bridge.broker.peer import Peer, peer_of
from bridge.errors import BridgeError, Defect
from runner import wire

READ_SECONDS: Final = 10
"""Web is on the same machine: a request that takes longer to arrive is not web's."""

BACKLOG: Final = 128

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})
"""accept(2) fails with these under load; the connections that are open end, and the broker goes on."""

PAUSE_SECONDS: Final = 0.1

Answer = tuple[dict[str, Any], bytes]
Handler = Callable[[Mapping[str, Any], Peer], Answer]

log = structlog.get_logger()


class BrokerServer:
    """Answers requests ``{"op": NAME, ...}`` from handlers by name, each connection in a thread of its own."""

    def __init__(self, listener: socket.socket, allowed_uids: frozenset[int], handlers: Mapping[str, Handler]) -> None:
        self._listener = listener
        self._allowed = allowed_uids
        self._handlers = handlers
        self._stopping = threading.Event()
        # A service manager keeps the socket open for the next broker, so it must not be shut down to end ``accept``.
        self._listener.settimeout(0.0)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def serve_forever(self) -> None:
        """Accept until ``stop``."""
        with self._listener, self._wake_closed_after(), selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._stopping.is_set():
                selector.select()
                self._accept()

    @contextlib.contextmanager
    def _wake_closed_after(self) -> Iterator[None]:
        try:
            yield
        finally:
            # A late stop must not write to whatever gets the descriptor's number next.
            wake, self._wake = self._wake, -1
            os.close(wake)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                log.warning("broker.accept", error=error.strerror)
                self._stopping.wait(PAUSE_SECONDS)
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        """Accept no more; requests under way end by themselves. From any thread, and from a signal handler."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, wire.BrokenFrame):
            peer = peer_of(connection)
            if peer.uid not in self._allowed:
                log.warning("broker.stranger", uid=peer.uid, pid=peer.pid)
                return
            connection.settimeout(READ_SECONDS)
            with connection.makefile("rb") as stream:
                frame = wire.read_frame(stream)
            if frame is None:
                return
            header, data = self._answer(frame[0], peer)
            connection.settimeout(READ_SECONDS)
            connection.sendall(wire.encode(header, data))

    def _answer(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        handler = self._handlers.get(str(request.get("op")))
        try:
            if handler is None:
                raise Defect("broker.unknown_op", "Web asked the broker for something it does not do.", "Update both.")
            header, data = handler(request, peer)
        except BridgeError as error:
            return error_header(error), b""
        except Exception as error:
            log.exception("broker.defect", op=request.get("op"), kind=type(error).__name__)
            defect = Defect("broker.defect", "The broker failed at its own work.", "Report it to the operators.")
            return error_header(defect), b""
        return {"ok": True} | header, data


def error_header(error: BridgeError) -> dict[str, Any]:
    """Put an error in a reply, less its context, which stays in the broker's own records."""
    return {
        "ok": False,
        "kind": type(error).__name__,
        "code": error.code,
        "title": error.title,
        "remedy": error.remedy,
        "reference": error.context.get("reference"),
    }


def listen(path: Path) -> socket.socket:
    """Bind the broker's socket at ``path`` with mode 0600; a socket that is there already is replaced.

    Under a service manager the socket comes from it instead, so that it can belong to web's user.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    previous = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(previous)
    listener.listen(BACKLOG)
    return listener
