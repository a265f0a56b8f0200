"""The agent's one way out: whole frames on standard output, from many threads."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from runner import wire


class Outbox:
    """Writes frames to a descriptor, one at a time; says nothing more once the other side is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._closed = False

    def send(self, header: dict[str, Any], data: bytes = b"") -> None:
        """Send one frame; where nobody reads any more, make the agent end as at the end of its input."""
        frame = memoryview(wire.encode(header, data))
        with self._lock:
            if self._closed:
                return
            try:
                while frame:
                    frame = frame[os.write(self._descriptor, frame) :]
            except OSError:
                self._closed = True
                os.kill(os.getpid(), signal.SIGTERM)
