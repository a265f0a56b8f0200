"""The broker's unix socket: one request and one reply a connection, from web's user only, and so many at a time."""

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

from bridge.broker.incoming import read_request
from bridge.broker.peer import HeldPeer, Peer, can_see_processes, peer_of
from bridge.broker.place import require_own_directories
from bridge.errors import BridgeError, Defect, RequestRefused
from runner import wire

READ_SECONDS: Final = 10
"""Web is on the same machine: a request that takes longer to arrive, or a reply to be read, is not web's."""

BACKLOG: Final = 128

MAX_CONNECTIONS: Final = 128
"""As many threads at most. The next ones wait in the backlog, and those behind it are told to come again."""

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})
"""accept(2) fails with these under load; the connections that are open end, and the broker goes on."""

PAUSE_SECONDS: Final = 0.1

Answer = tuple[dict[str, Any], bytes]
Handler = Callable[[Mapping[str, Any], Peer], Answer]

log = structlog.get_logger()


class BrokerServer:
    """Answers requests ``{"op": NAME, ...}`` from handlers by name, each connection in a thread of its own.

    Only a peer of an allowed user is read from, and only the process that connected is answered: one that has ended or
    become somebody else meanwhile is not (T28).
    """

    def __init__(self, listener: socket.socket, allowed_uids: frozenset[int], handlers: Mapping[str, Handler]) -> None:
        """Take a listening socket; raises RequestRefused ``broker.processes_hidden``."""
        if not can_see_processes():
            raise RequestRefused(
                "broker.processes_hidden",
                "The broker can't see who asks it: Linux is older than 5.3, or /proc hides other users' processes.",
                "Run the broker with ProtectProc=default, and without hidepid for its user.",
            )
        self._listener = listener
        self._allowed = allowed_uids
        self._handlers = handlers
        self._stopping = threading.Event()
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        # A service manager keeps the socket open for the next broker, so it must not be shut down to end ``accept``.
        self._listener.settimeout(0.0)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Reentrant: who stops the server may be a signal handler of the very thread that closes the descriptor.
        self._waking = threading.RLock()

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
            with self._waking:
                wake, self._wake = self._wake, -1
                os.close(wake)

    def _accept(self) -> None:
        while self._place():
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                self._places.release()
                return
            except OSError as error:
                self._places.release()
                if error.errno not in _PASSING:
                    raise
                log.warning("broker.accept", error=error.strerror)
                self._stopping.wait(PAUSE_SECONDS)
                continue
            self._begin(connection)

    def _place(self) -> bool:
        """Wait for room for one more connection; False where the server is to stop."""
        while not self._stopping.is_set():
            if self._places.acquire(timeout=PAUSE_SECONDS):
                return True
        return False

    def _begin(self, connection: socket.socket) -> None:
        """Start a thread for an allowed peer; a stranger does not get as far as that."""
        try:
            peer = peer_of(connection)
            if peer.uid in self._allowed:
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
                return
            log.warning("broker.stranger", uid=peer.uid, pid=peer.pid)
        except (OSError, RuntimeError) as error:
            log.warning("broker.accept", error=type(error).__name__)
        connection.close()
        self._places.release()

    def stop(self) -> None:
        """Accept no more; requests under way end by themselves. From any thread, a signal handler, and again."""
        self._stopping.set()
        with self._waking:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, wire.BrokenFrame), HeldPeer(connection) as held:
                request = read_request(connection, READ_SECONDS)
                if request is None or self._replaced(held, "request"):
                    return
                header, data = self._answer(request, held.peer)
                if self._replaced(held, "reply"):
                    return
                connection.settimeout(READ_SECONDS)
                connection.sendall(wire.encode(header, data))
        finally:
            self._places.release()

    @staticmethod
    def _replaced(held: HeldPeer, before: str) -> bool:
        """Tell whether who connected is gone or has become somebody else; the connection is then nobody's."""
        if held.is_the_same():
            return False
        log.warning("broker.peer_replaced", before=before, uid=held.peer.uid, pid=held.peer.pid)
        return True

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

    Under a service manager the socket comes from it instead, so that it can belong to web's user. Raises
    RequestRefused ``broker.socket_place`` where somebody else could put a socket of theirs in its place.
    """
    require_own_directories(path, frozenset({0, os.geteuid()}))
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
