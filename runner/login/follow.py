"""The verb ``follow``: sends a file as it grows, from an offset, until it is told to stop."""

from __future__ import annotations

import os
import stat
import threading
import time
from typing import Any

from runner.login.call import Call
from runner.login.failures import foreign
from runner.login.request import Request
from runner.wire import OUTPUT_CHUNK_BYTES

QUIET_STEPS = ((1.0, 0.02), (60.0, 0.08), (float("inf"), 0.25))
"""(seconds without anything new, pause between two looks): a busy log is fast, a silent one is cheap."""


def follow(request: Request, call: Call) -> dict[str, Any]:
    """Send what is in the file from ``offset`` on; returns the offset after the last byte that was sent.

    Each ``output`` event carries the offset of its first byte. The file may not exist yet. Polled, not watched: inotify
    tells nothing of what a compute node writes to a shared file system.
    """
    path, offset = request.text("path"), request.integer("offset", 0, 2**62, default=0)
    follower = call.registry.start(call.number, lambda: Follower(path, offset, call))
    try:
        return {"offset": follower.copy()}
    finally:
        follower.finish()


class Follower:
    """One file that is being followed."""

    def __init__(self, path: str, offset: int, call: Call) -> None:
        self._path = path
        self._offset = offset
        self._call = call
        self._descriptor = -1
        self._stop = threading.Event()
        self._drain = False
        self._done = threading.Event()

    def copy(self) -> int:
        """Send until stopped; returns the offset that was reached."""
        moved_at = time.monotonic()
        while not self._stop.is_set():
            if self._send_new():
                moved_at = time.monotonic()
            else:
                quiet = time.monotonic() - moved_at
                self._stop.wait(next(pause for limit, pause in QUIET_STEPS if quiet < limit))
        if self._drain:
            # Opening anew makes a network file system ask its server how long the file is by now.
            self._close()
            while self._send_new():
                pass
        return self._offset

    def stop(self, grace_seconds: float, *, drain: bool) -> None:
        """Stop; with ``drain`` only once everything up to the end of the file was sent."""
        self._drain = drain
        self._stop.set()
        self._done.wait(grace_seconds or None)

    def finish(self) -> None:
        """Close the file and let ``stop`` return."""
        self._close()
        self._done.set()

    def _send_new(self) -> bool:
        """Send one piece, if there is one."""
        if self._descriptor < 0 and not self._open():
            return False
        data = os.pread(self._descriptor, OUTPUT_CHUNK_BYTES, self._offset)
        if data:
            self._call.output(data, offset=self._offset)
            self._offset += len(data)
        return bool(data)

    def _open(self) -> bool:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise foreign("The log file") from error
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise foreign("The log file")
        return True

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
