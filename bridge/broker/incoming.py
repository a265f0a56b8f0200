"""Reads the one request of a connection, within a number of bytes and a time that hold for all of it."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from runner import wire

MAX_REQUEST_BYTES: Final = 8 + wire.MAX_HEADER_BYTES + wire.MAX_DATA_BYTES
"""Two lengths, a header, and the files of a policy behind it where there are any."""

DATA: Final = "data"
"""Under this name a handler finds what came behind the header."""


def read_request(connection: socket.socket, seconds: float) -> Mapping[str, Any] | None:
    """Return what was asked, or None where nothing came; raises BrokenFrame, and OSError after ``seconds``.

    What the header says itself under the name of the data is nobody's data.
    """
    with io.BufferedReader(_Bounded(connection, time.monotonic() + seconds)) as stream:
        frame = wire.read_frame(stream)
    if frame is None:
        return None
    header, data = frame
    asked = {name: value for name, value in header.items() if name != DATA}
    return asked | {DATA: data} if data else asked


class _Bounded(io.RawIOBase):
    """A connection that ends after MAX_REQUEST_BYTES, and fails at a time of the monotonic clock.

    A time-out of the socket alone would begin anew with each byte, so that a peer could stay as long as it liked.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        self._left = MAX_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the request took too long to arrive")
        self._connection.settimeout(seconds)
        size = min(len(buffer), self._left)
        received = self._connection.recv_into(buffer, size) if size else 0
        self._left -= received
        return received
