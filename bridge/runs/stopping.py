"""Ends runs that must not go on, some at a time, and again until the end of each is confirmed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from bridge.errors import BridgeError, Refused
from bridge.model import RunId, RunState
from bridge.runs.live import Runs
from bridge.runs.live_run import LiveRun

AT_ONCE: Final = 16
"""How many ends are confirmed side by side; their Slurm jobs are cancelled before that, all of them."""

FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 60.0
"""Between two tries to confirm the end of one run; it doubles."""

log = structlog.get_logger()


class Stopper:
    """Ends runs in threads of its own; safe to use from many."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._lock = threading.Lock()
        self._under_way: set[RunId] = set()
        self._pauses: dict[RunId, tuple[float, float]] = {}
        """When each that could not be confirmed is tried again, and the pause before that."""
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="run-stopper")

    def stop(self, live: LiveRun, why: BridgeError) -> None:
        """Have a run ended, and its Slurm jobs cancelled at once; again is harmless. Raises Outage ``db.*``."""
        self._runs.condemn(live, why)
        self._finish(live)

    def go_on(self) -> None:
        """Take up again what could not be confirmed, and let go of what has been over for long."""
        for live in self._runs.held():
            if live.stopped is not None and live.run.state is not RunState.ENDED and live.forget_at is None:
                self._finish(live)
        self._runs.forget_the_stopped()

    def close(self) -> None:
        """Begin no more; what is under way fails with the connections."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _finish(self, live: LiveRun) -> None:
        with self._lock:
            next_try, _ = self._pauses.get(live.run.run_id, (0.0, 0.0))
            if live.run.run_id in self._under_way or time.monotonic() < next_try:
                return
            self._under_way.add(live.run.run_id)
        self._workers.submit(self._work, live)

    def _work(self, live: LiveRun) -> None:
        done = False
        try:
            self._runs.finish(live)
            done = True
        except Refused as error:
            # As after the time in which a run gets tickets: asking again would be refused again, and fill the log.
            log.error("run.stop_refused", run_id=live.run.run_id, code=error.code)  # noqa: TRY400 - no defect of ours
            live.forget_at = time.monotonic()
            done = True
        except BridgeError as error:
            log.warning("run.stop_unconfirmed", run_id=live.run.run_id, code=error.code)
        except Exception as error:
            log.exception("run.stop_defect", run_id=live.run.run_id, kind=type(error).__name__)
        finally:
            self._settle(live.run.run_id, done=done)

    def _settle(self, run_id: RunId, *, done: bool) -> None:
        with self._lock:
            self._under_way.discard(run_id)
            _, before = self._pauses.pop(run_id, (0.0, 0.0))
            if not done:
                pause = min(max(before * 2, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                self._pauses[run_id] = (time.monotonic() + pause, pause)
