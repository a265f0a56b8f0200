"""A run that this process has in its hands: its secrets, its connection, its tickets and its stages."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from bridge.cluster.pool import Lease
from bridge.errors import BridgeError
from bridge.lifecycle import require_live
from bridge.model import Run, RunState
from bridge.runs.login_tickets import LoginTickets
from bridge.runs.task import StageTask
from bridge.runs.tickets import RunTickets

TAIL_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class LiveRun:
    """A run whose executor has shown its session secret to this process."""

    run: Run
    session: str = field(repr=False)
    lease: Lease = field(repr=False)
    tickets: RunTickets = field(repr=False)
    login_tickets: LoginTickets = field(repr=False)
    job_token: str | None = field(default=None, repr=False)
    """To ask GitLab whether the job still runs; None in the next process, until the executor has come with it.

    Never checked: a wrong one is another job's for GitLab too, and ends the run, which its session can do anyway.
    """
    tasks: dict[str, StageTask] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ending: bool = False
    """Whether its end was asked for; no stage starts any more."""
    stopped: BridgeError | None = None
    """Why it must end, where that is not its executor's wish; carries the reference of its record."""
    heard: float = field(default_factory=time.monotonic)
    """When its executor last called, by ``time.monotonic``."""
    forget_at: float | None = None
    """By ``time.monotonic``; of a stopped run that has ended."""

    def log_tail(self) -> bytes:
        """Return the last bytes of each stage's log, at most 64 KiB, without the secrets of the run (T46)."""
        with self.lock:
            tail = b"".join(task.feed.tail for task in self.tasks.values())[-TAIL_BYTES:]
        for secret in (self.session, self.job_token):
            if secret:
                tail = tail.replace(secret.encode(), b"[hidden]")
        return tail

    def require_open(self) -> None:
        """Pass where stages can be started; raises why it was stopped, or Conflict ``run.ended``."""
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        require_live(RunState.ENDED if self.ending else self.run.state)
