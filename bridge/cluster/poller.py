"""Asks Slurm about all watched jobs at once: one request for each connection and tick, however many runs there are.

A tick comes every ``SLOW_SECONDS``, and every ``FAST_SECONDS`` for a short while after a hint that something is about
to change (a release, the end of a log, a cancel).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol

from bridge.cluster.slurm import JobState
from bridge.errors import BridgeError, Outage

FAST_SECONDS: Final = 0.3
SLOW_SECONDS: Final = 2.0
HINT_SECONDS: Final = 3.0
"""How long a hint keeps the pace fast."""

MAX_WORKERS: Final = 16
"""How many connections are asked at once."""

MAX_BATCH: Final = 500
"""Job ids in one request: they go on squeue's command line."""


class Source(Protocol):
    """Where the states of some jobs come from: Slurm over one connection. Equal sources are asked together."""

    def states(self, job_ids: list[int]) -> dict[int, JobState]:
        """Give the state of each job that Slurm knows; raises BridgeError."""
        ...

    def __hash__(self) -> int:
        """Give equal numbers for equal sources."""
        ...


OnChange = Callable[[JobState], None]
OnTrouble = Callable[[BridgeError], None]


@dataclass(eq=False, slots=True)
class Watch:
    """One watched job; ``close`` ends the watching."""

    job_id: int
    source: Source
    on_change: OnChange
    on_trouble: OnTrouble
    last: JobState | None = field(default=None, init=False)
    closed: bool = field(default=False, init=False)

    def close(self) -> None:
        """Have no callback any more, except one that is running now. From any thread."""
        self.closed = True


class Poller:
    """Polls in threads of its own; ``start`` and ``stop`` it once.

    Callbacks run on those threads, one at a time for one source: they must be quick and not raise.
    """

    def __init__(
        self,
        *,
        fast_seconds: float = FAST_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
        hint_seconds: float = HINT_SECONDS,
    ) -> None:
        self._fast = fast_seconds
        self._slow = slow_seconds
        self._hint_length = hint_seconds
        self._changed = threading.Condition()
        self._watches: list[Watch] = []
        self._fast_until = 0.0
        self._hinted = False
        self._stopping = False
        self._busy: set[Source] = set()
        self._workers = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="slurm-poll")
        self._thread = threading.Thread(target=self._run, name="slurm-poller", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def stop(self, seconds: float = 90.0) -> None:
        """End polling and wait until no callback runs any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(seconds)
        self._workers.shutdown(wait=True, cancel_futures=True)

    def watch(self, job_id: int, source: Source, on_change: OnChange, on_trouble: OnTrouble) -> Watch:
        """Call ``on_change`` with each state that differs from the one before, until it ends or the watch is closed.

        ``on_trouble`` gets what went wrong in a tick, and Outage ``slurm.job_unknown`` where Slurm answers and does not
        know the job; the watching goes on. The job is asked about at once.
        """
        watch = Watch(job_id, source, on_change, on_trouble)
        with self._changed:
            self._watches.append(watch)
        self.hint()
        return watch

    def hint(self) -> None:
        """Poll now and be fast for a while: something is about to change."""
        with self._changed:
            self._fast_until = time.monotonic() + self._hint_length
            self._hinted = True
            self._changed.notify_all()

    def _run(self) -> None:
        while self._wait_for_tick():
            for source, watches in self._groups().items():
                self._workers.submit(self._poll_group, source, watches)

    def _poll_group(self, source: Source, watches: list[Watch]) -> None:
        try:
            for start in range(0, len(watches), MAX_BATCH):
                _poll(source, watches[start : start + MAX_BATCH])
        finally:
            with self._changed:
                self._busy.discard(source)

    def _wait_for_tick(self) -> bool:
        with self._changed:
            pause = self._fast if time.monotonic() < self._fast_until else self._slow
            self._changed.wait_for(lambda: self._stopping or (self._hinted and bool(self._watches)), pause)
            self._hinted = False
            return not self._stopping

    def _groups(self) -> dict[Source, list[Watch]]:
        groups: dict[Source, list[Watch]] = defaultdict(list)
        with self._changed:
            self._watches = [watch for watch in self._watches if not watch.closed]
            for watch in self._watches:
                # A connection that is slow to answer misses ticks; the others do not wait for it.
                if watch.source not in self._busy:
                    groups[watch.source].append(watch)
            self._busy.update(groups)
        return groups


def _poll(source: Source, watches: list[Watch]) -> None:
    try:
        states = source.states([watch.job_id for watch in watches])
    except BridgeError as error:
        for watch in watches:
            if not watch.closed:
                watch.on_trouble(error)
        return
    for watch in watches:
        if not watch.closed:
            _tell(watch, states.get(watch.job_id))


def _tell(watch: Watch, state: JobState | None) -> None:
    if state is None:
        watch.on_trouble(_job_unknown(watch.job_id))
    elif state != watch.last:
        watch.last = state
        watch.closed = watch.closed or state.ended
        watch.on_change(state)


def _job_unknown(job_id: int) -> BridgeError:
    return Outage(
        "slurm.job_unknown",
        "Slurm does not know a job that the bridge submitted.",
        "Retry the job; if it lasts, tell the operators of the cluster.",
        job_id=job_id,
    )
