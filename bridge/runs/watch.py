"""Asks GitLab every few seconds whether the job of each live run still runs, and has the run ended where it does not.

One thread and one question at a time for all runs, whatever their number: each is asked about when its turn has come,
and a GitLab that does not answer is left alone for a turn, so that it does not keep the others waiting. Its silence by
itself ends nothing, unless a setting says after how long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from bridge.errors import BridgeError, Outage, TokenRefused
from bridge.model import RunId, RunState
from bridge.oidc.gitlab import Pulse
from bridge.oidc.refusal import job_refused
from bridge.runs.live import Runs
from bridge.runs.live_run import LiveRun
from bridge.runs.stopping import Stopper

CANCELING_SECONDS: Final = 60.0
"""A job that somebody cancels in GitLab is the runner's to end, with its after_script; no longer than this."""

LOOK_SECONDS: Final = 1.0
"""How soon a new run is seen; what is due is asked about in between."""

log = structlog.get_logger()


class JobStates(Protocol):
    """Says what becomes of a job; ``oidc.gitlab.GitLabJobCheck``."""

    def state(self, job_token: str) -> Pulse:
        """Raises TokenRefused ``job.*`` where the job is over, Outage where that can't be known."""
        ...


@dataclass(slots=True)
class _Turn:
    """What is known of one run; times by ``time.monotonic``."""

    due: float
    heard: float
    """When GitLab last said that it runs; at first, when we began to ask."""
    canceling: float | None = None
    doubted: bool = False
    """Whether GitLab has said once that the job is over, while nothing of it was at work."""


class JobWatch:
    """A thread that asks; ``start`` and ``stop`` it once. Runs whose job token is not known here are not watched."""

    def __init__(
        self,
        runs: Runs,
        stopper: Stopper,
        jobs: Mapping[str, JobStates],
        *,
        every_seconds: float,
        silence_seconds: float = 0,
    ) -> None:
        """``jobs`` is by issuer; ``silence_seconds`` of no answer end a run as an outage, 0 never."""
        self._runs = runs
        self._stopper = stopper
        self._jobs = dict(jobs)
        self._every = every_seconds
        self._silence = silence_seconds
        self._turns: dict[RunId, _Turn] = {}
        self._rest_until: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a question that is under way."""
        self._stopping.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause()):
            try:
                self.look()
            except BridgeError as error:
                log.warning("job_watch.failed", code=error.code)
            except Exception as error:
                log.exception("job_watch.defect", kind=type(error).__name__)

    def look(self) -> None:
        """Ask about every run whose turn has come, the one that waits longest first; raises Outage ``db.*``."""
        now = time.monotonic()
        watched = {live.run.run_id: live for live in self._runs.held() if _is_watched(live)}
        first = {run_id: _Turn(now + self._every * _share(run_id), now) for run_id in watched}
        self._turns = {run_id: self._turns.get(run_id, turn) for run_id, turn in first.items()}
        for run_id, turn in sorted(self._turns.items(), key=lambda one: one[1].due):
            if turn.due > now or self._stopping.is_set():
                return
            turn.due = time.monotonic() + self._every
            self._ask(watched[run_id], turn)

    def _pause(self) -> float:
        due = min((turn.due for turn in self._turns.values()), default=float("inf"))
        return max(0.0, min(LOOK_SECONDS, self._every, due - time.monotonic()))

    def _ask(self, live: LiveRun, turn: _Turn) -> None:
        identity = live.run.grant.identity
        check = self._jobs.get(identity.issuer)
        if check is None or live.job_token is None:
            return
        if time.monotonic() < self._rest_until.get(identity.issuer, 0.0):
            self._require_heard(live, turn)
            return
        try:
            pulse = check.state(live.job_token)
            if pulse.job_id != identity.job_id:
                raise job_refused("not_running", "the job token is another job's", job_id=identity.job_id)
        except TokenRefused as error:
            self._over(live, turn, error)
        except Outage as error:
            log.info("job_watch.silence", issuer=identity.issuer, code=error.code)
            self._rest_until[identity.issuer] = time.monotonic() + self._every
            self._require_heard(live, turn)
        else:
            self._alive(live, turn, pulse)

    def _alive(self, live: LiveRun, turn: _Turn, pulse: Pulse) -> None:
        now = time.monotonic()
        turn.heard, turn.doubted = now, False
        turn.canceling = (turn.canceling or now) if pulse.canceling else None
        if turn.canceling is not None and now - turn.canceling > CANCELING_SECONDS:
            cause = "the job was cancelled, and its runner does not end it"
            self._stopper.stop(live, job_refused("not_running", cause, job_id=pulse.job_id))

    def _over(self, live: LiveRun, turn: _Turn, error: TokenRefused) -> None:
        """End the run, after one more look where nothing of it is at work: its own cleanup may be on the way."""
        busy = any(not task.over for task in list(live.tasks.values()))
        if busy or turn.doubted:
            self._stopper.stop(live, error)
        turn.doubted = True

    def _require_heard(self, live: LiveRun, turn: _Turn) -> None:
        if self._silence and time.monotonic() - turn.heard > self._silence:
            self._stopper.stop(
                live,
                Outage(
                    "gitlab.silent",
                    "GitLab has not said for too long whether this job still runs.",
                    "Retry the job once GitLab answers; administrators: see web.gitlab_silence_seconds.",
                ),
            )


def _is_watched(live: LiveRun) -> bool:
    return live.job_token is not None and not live.ending and live.run.state is not RunState.ENDED


def _share(run_id: RunId) -> float:
    """Return a number from 0 to 1 that is each run's own: runs that begin together are asked about one by one."""
    return int(run_id[-4:], 36) / 36**4
