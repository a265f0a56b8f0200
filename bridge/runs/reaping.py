"""Ends runs that nobody will end: their executor has gone silent for good, or no process holds them any more.

A silent executor alone ends nothing, because a runner's host may be cut off while the job goes on: GitLab is asked, and
the run ends where the job is over there, or where we have no job token to ask with. GitLab's own silence is
`web.gitlab_silence_seconds`' matter.

What no process holds since a restart can only be written off: web gets no tickets without the run's session, so
nothing is cancelled or removed on the cluster, and the record says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from bridge.audit.ledger import Ledger
from bridge.audit.record import Phase
from bridge.errors import BridgeError, Outage, TokenRefused
from bridge.lifecycle import FINAL, RUN_TRANSITIONS
from bridge.model import Run, RunState, StageState
from bridge.references import new_reference
from bridge.runs.book import StageBook
from bridge.runs.live import Runs
from bridge.runs.live_run import LiveRun
from bridge.runs.run_records import stop_record
from bridge.runs.stopping import Stopper
from bridge.runs.watch import JobStates
from runner.wire import Outcome

EVERY_SECONDS: Final = 30.0
ORPHANS_EVERY_SECONDS: Final = 300.0
ORPHAN_GRACE: Final = timedelta(minutes=30)
"""After a run's end: the broker gives its process tickets for a quarter of an hour more, and stopping takes a while."""

log = structlog.get_logger()


class Reaper:
    """A thread that looks; ``start`` and ``stop`` it once."""

    def __init__(
        self,
        ledger: Ledger,
        runs: Runs,
        stopper: Stopper,
        jobs: Mapping[str, JobStates],
        *,
        silence_seconds: float,
        every_seconds: float = EVERY_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``jobs`` is by issuer; ``silence_seconds`` without a call of the executor, 0 for never."""
        self._ledger = ledger
        self._runs = runs
        self._stopper = stopper
        self._jobs = dict(jobs)
        self._silence = silence_seconds
        self._every = every_seconds
        self._now = now
        self._orphans_due = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="run-reaper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a question that is under way."""
        self._stopping.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self.look()
                if time.monotonic() >= self._orphans_due:
                    self._orphans_due = time.monotonic() + ORPHANS_EVERY_SECONDS
                    self.write_off()
            except BridgeError as error:
                log.warning("run_reaper.failed", code=error.code)
            except Exception as error:
                log.exception("run_reaper.defect", kind=type(error).__name__)

    def look(self) -> None:
        """Have every held run ended whose executor is silent and whose job is not known to run; raises ``db.*``."""
        before = time.monotonic() - self._silence
        for live in self._runs.held() if self._silence else ():
            if self._stopping.is_set():
                return
            silent = live.heard < before and not live.ending and live.run.state is not RunState.ENDED
            if silent and not self._may_run(live):
                self._stopper.stop(live, _abandoned())

    def write_off(self) -> list[Run]:
        """Mark the runs ended that no process holds and whose time is long over; returns them. Raises ``db.*``."""
        held = {live.run.run_id for live in self._runs.held()}
        with self._ledger.read() as view:
            late = [run for run in view.live_runs() if run.not_after + ORPHAN_GRACE <= self._now()]
        return [run for run in late if run.run_id not in held and self._written_off(run)]

    def _may_run(self, live: LiveRun) -> bool:
        """Whether GitLab may still have the job running; it is asked once a look, and only about silent runs."""
        identity = live.run.grant.identity
        check = self._jobs.get(identity.issuer)
        if check is None or live.job_token is None:
            return False
        try:
            return check.state(live.job_token).job_id == identity.job_id
        except TokenRefused:
            return False
        except Outage as error:
            log.info("run_reaper.silence", run_id=live.run.run_id, code=error.code)
            return True

    def _written_off(self, run: Run) -> bool:
        with self._ledger.read() as view:
            unsettled = [stage for stage in view.stages(run.run_id) if stage.state not in FINAL]
        for stage in unsettled:
            book = StageBook(self._ledger, run, stage, new_reference())
            book.finish(StageState.LOST, Outcome.OUTAGE, code="run.abandoned")
        unknown = sum(stage.slurm_job_id is not None for stage in unsettled)
        detail: dict[str, str | int | bool] = {
            "state": "ended",
            "cluster_cleaned": False,
            "jobs_not_cancelled": unknown,
        }
        with self._ledger.begin() as tx:
            now = tx.run(run.run_id)
            if now.state is RunState.ENDED or now.not_after != run.not_after:
                return False
            ended = tx.update_run_state(run.run_id, RUN_TRANSITIONS.keys(), RunState.ENDED)
            tx.append(stop_record(ended, Phase.FAILED, _abandoned(), detail))
        log.warning("run.written_off", run_id=run.run_id, jobs_not_cancelled=unknown)
        return True


def _abandoned() -> Outage:
    return Outage(
        "run.abandoned",
        "The run's executor has not come back for too long.",
        "Retry the job in GitLab; administrators: see web.executor_silence_seconds.",
    )
