"""Looks every second at what must end: by a kill switch, by the word of an account's owner, or an operator's cancel.

It is in the database, so what was said anywhere works on every web process. Admission, stages and tickets look for
themselves in their own transactions; this is for what runs already.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog

from bridge.audit.ledger import Ledger
from bridge.errors import BridgeError, PolicyRefused
from bridge.runs.live import Runs
from bridge.runs.stopping import Stopper
from bridge.standing import RegisterCache, objection

EVERY_SECONDS: Final = 1.0

log = structlog.get_logger()


class KillWatch:
    """A thread that looks; ``start`` and ``stop`` it once."""

    def __init__(
        self,
        ledger: Ledger,
        register: RegisterCache,
        runs: Runs,
        stopper: Stopper,
        *,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._ledger = ledger
        self._register = register
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
            register = self._register.current(view)
            cancelled = {one.run_id for one in view.cancels()}
        for live in self._runs.held():
            if live.stopped is not None:
                continue
            error = objection(register, live.run.grant)
            if error is None and live.run.run_id in cancelled:
                error = _cancelled()
            if error is not None:
                self._stopper.stop(live, error)
        self._stopper.go_on()


def _cancelled() -> PolicyRefused:
    """What the person whose job it was is told; the reason is for the record."""
    return PolicyRefused(
        "run.cancelled",
        "An operator of the bridge cancelled this job.",
        "Ask them why, with the reference; a new job of the pipeline can run.",
    )
