"""What comes back for one request to the login agent: a single answer, or output of unknown length before it.

The reader of a connection fills these and never waits long for one of them: a request whose consumer is slow must not
hold up the others on the same connection. A followed file is let go of and taken up again at its offset; the output of
a script, which can't be read twice, gives its consumer ``PATIENCE_SECONDS``.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final, Protocol

from bridge.errors import BridgeError, Outage

HOLD_BYTES: Final = 2 * 1024 * 1024
"""How much of one stream is held for its consumer."""

PATIENCE_SECONDS: Final = 30.0

Header = dict[str, Any]


class Sink(Protocol):
    """Takes what the agent sends for one request; called by the connection's reader."""

    def output(self, header: Header, data: bytes) -> None:
        """Take one piece of output."""
        ...

    def done(self, header: Header) -> None:
        """Take the answer that ends the request."""
        ...

    def fail(self, error: BridgeError) -> None:
        """Take the error that ends the request."""
        ...


class Reply:
    """The sink of a request that has one answer."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._header: Header = {}
        self._error: BridgeError | None = None

    def output(self, header: Header, data: bytes) -> None:
        """Ignore it: the verb has no output."""

    def done(self, header: Header) -> None:
        """See Sink."""
        self._header = header
        self._over.set()

    def fail(self, error: BridgeError) -> None:
        """See Sink."""
        self._error = error
        self._over.set()

    def wait(self, seconds: float) -> Header | None:
        """Give the answer, or None if there is none yet; raises what ended the request instead."""
        if not self._over.wait(seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._header


class Stream:
    """A bounded queue of pieces of output, with an end. One thread puts, one takes, any may close."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._held = 0
        self._final: Header | None = None
        self._error: BridgeError | None = None
        self._closed = False

    def offer(self, offset: int, data: bytes, patience: float) -> bool:
        """Put a piece unless the queue stays full for ``patience`` seconds; a closed one keeps nothing."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._held < HOLD_BYTES, patience):
                return False
            self._append(offset, data)
            return True

    def put(self, offset: int, data: bytes) -> None:
        """Put a piece, waiting for room; raises Outage ``login.slow_consumer``."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._held < HOLD_BYTES, PATIENCE_SECONDS):
                raise Outage(
                    "login.slow_consumer",
                    "Nobody took the output of a script in time.",
                    "Retry the job; if it lasts, look at the load of the bridge.",
                )
            self._append(offset, data)

    def end(self, header: Header) -> None:
        """Close the queue after what is in it."""
        with self._changed:
            self._final = header
            self._changed.notify_all()

    def fail(self, error: BridgeError) -> None:
        """Close the queue with an error, to be raised after what is in it."""
        with self._changed:
            if self._final is None and self._error is None:
                self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what is in it and all that still comes."""
        with self._changed:
            self._closed = True
            self._pieces.clear()
            self._held = 0
            self._changed.notify_all()

    def take(self, seconds: float | None = None) -> tuple[int, bytes] | None:
        """Wait for a piece, for ever or some seconds; None at the end or after that; raises the error that ended it."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._pieces) or self._over, seconds)
            if self._pieces:
                piece = self._pieces.popleft()
                self._held -= len(piece[1])
                self._changed.notify_all()
                return piece
            if self._error is not None and not self._closed:
                raise self._error
            return None

    @property
    def drained(self) -> bool:
        """Whether nothing will ever be taken any more."""
        with self._changed:
            return self._over and not self._pieces

    @property
    def final(self) -> Header | None:
        """The answer that ended the request, once it has come."""
        return self._final

    @property
    def _over(self) -> bool:
        return self._closed or self._final is not None or self._error is not None

    def _append(self, offset: int, data: bytes) -> None:
        if not self._closed:
            self._pieces.append((offset, data))
            self._held += len(data)
            self._changed.notify_all()
