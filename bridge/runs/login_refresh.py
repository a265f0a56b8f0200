"""Renews the tickets of stages that last on the login node, while their runs may go on.

The look itself asks nobody: it compares times that are known here. What is due goes to a few threads, so that a login
node or a broker that is slow to answer holds up its own runs only. The broker decides each time anew, and has it on
record: for a run that may have no more tickets, those that are there end by themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from bridge.errors import Outage
from bridge.model import RunId, RunState
from bridge.runs.feed import FeedClosed
from bridge.runs.live import Runs
from bridge.runs.live_run import LiveRun
from bridge.runs.login_stage import LoginStage

EVERY_SECONDS: Final = 1.0

RETRY_SECONDS: Final = 30.0
"""Between two tries for one run; each is on record. The shortest tickets leave time for three."""

AT_ONCE: Final = 16
"""How many runs get fresh tickets side by side, one of each account: they share a connection and a cache."""

AT_ONCE_ON_A_CLUSTER: Final = 8
"""So that a cluster whose login nodes hang leaves some for the others."""

Key = tuple[str, str]
"""Cluster and account."""

log = structlog.get_logger()


class LoginRefresh:
    """A thread that looks, and some that renew; ``start`` and ``stop`` it once."""

    def __init__(
        self, runs: Runs, *, every_seconds: float = EVERY_SECONDS, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._runs = runs
        self._every = every_seconds
        self._retry = retry_seconds
        self._lock = threading.Lock()
        self._under_way: set[Key] = set()
        self._next_try: dict[RunId, float] = {}
        """By ``time.monotonic``; of runs whose tickets could not be renewed the last time."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="login-refresh", daemon=True)
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="login-tickets")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is under way fails with the connections."""
        self._stopping.set()
        self._thread.join(30.0)
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self.look()
            except Exception as error:
                log.exception("login_refresh.defect", kind=type(error).__name__)

    def look(self) -> int:
        """Have tickets renewed that end soon, of stages at work; returns for how many that was begun now."""
        held = self._runs.held()
        with self._lock:
            ids = {live.run.run_id for live in held}
            self._next_try = {run_id: at for run_id, at in self._next_try.items() if run_id in ids}
        return sum(self._begin(live, stage) for live in held for stage in _in_need(live))

    def _begin(self, live: LiveRun, stage: LoginStage) -> bool:
        key = (live.run.grant.cluster.name, live.run.grant.account.name)
        with self._lock:
            there = sum(cluster == key[0] for cluster, _ in self._under_way)
            waits = time.monotonic() < self._next_try.get(live.run.run_id, 0.0)
            if key in self._under_way or there >= AT_ONCE_ON_A_CLUSTER or waits:
                return False
            self._under_way.add(key)
        self._workers.submit(self._work, live, stage, key)
        return True

    def _work(self, live: LiveRun, stage: LoginStage, key: Key) -> None:
        try:
            if _may_go_on(live):
                stage.renew_tickets()
        except FeedClosed:
            pass
        except Outage as error:
            log.warning("login_refresh.later", run_id=live.run.run_id, code=error.code)
        except Exception as error:
            log.exception("login_refresh.defect", run_id=live.run.run_id, kind=type(error).__name__)
        finally:
            self._settle(live.run.run_id, key, done=not stage.needs_tickets)

    def _settle(self, run_id: RunId, key: Key, *, done: bool) -> None:
        with self._lock:
            self._under_way.discard(key)
            self._next_try.pop(run_id, None)
            if not done:
                self._next_try[run_id] = time.monotonic() + self._retry


def _in_need(live: LiveRun) -> Iterator[LoginStage]:
    if _may_go_on(live):
        for task in list(live.tasks.values()):
            if isinstance(task, LoginStage) and task.needs_tickets:
                yield task


def _may_go_on(live: LiveRun) -> bool:
    return not live.ending and live.stopped is None and live.run.state is not RunState.ENDED
