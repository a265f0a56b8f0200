"""Closes login connections that nobody uses any more, every few seconds."""

from __future__ import annotations

import threading
from typing import Final

from bridge.cluster.pool import LoginPool

EVERY_SECONDS: Final = 5.0


class Sweeper:
    """A thread that sweeps a pool; ``start`` and ``stop`` it once."""

    def __init__(self, pool: LoginPool) -> None:
        self._pool = pool
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="login-sweeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a sweep that is under way."""
        self._stopping.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_SECONDS):
            self._pool.sweep()
