"""Looks at the kill switches every second, and has the runs ended that one of them stops.

They are in the database, so one that was thrown anywhere works on every web process. Admission, stages and tickets look
for themselves in their own transactions; this is for what runs already.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog

from bridge.audit.kills import refusal, stops
from bridge.audit.ledger import Ledger
from bridge.errors import BridgeError
from bridge.runs.live import Runs
from bridge.runs.stopping import Stopper

EVERY_SECONDS: Final = 1.0

log = structlog.get_logger()


class KillWatch:
    """A thread that looks; ``start`` and ``stop`` it once."""

    def __init__(self, ledger: Ledger, runs: Runs, stopper: Stopper, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._ledger = ledger
        self._runs = runs
        self._stopper = stopper
        self._every = every_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kill-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and begin no more ends of runs."""
        self._stopping.set()
        self._thread.join(30.0)
        self._stopper.close()

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self.look()
            except BridgeError as error:
                log.warning("kill_watch.failed", code=error.code)
            except Exception as error:
                # A thread that died here would leave every kill switch without effect on what runs.
                log.exception("kill_watch.defect", kind=type(error).__name__)

    def look(self) -> None:
        """Look once; raises Outage ``db.*``."""
        with self._ledger.read() as view:
            switches = view.kill_switches()
        for live in self._runs.held() if switches else ():
            switch = next((one for one in switches if stops(one, live.run.grant)), None)
            if switch is not None and live.stopped is None:
                self._stopper.stop(live, refusal(switch))
        self._stopper.go_on()
