"""The runner's loop: asks for jobs, runs several side by side, and stops in order."""

import logging
import threading
from dataclasses import dataclass, field

import httpx2

from realm.runner.config import Config, RunnerConfig
from realm.runner.context import Context
from realm.runner.coordinator import Coordinator
from realm.runner.errors import JobAborted
from realm.runner.pace import Pace
from realm.runner.passage import Passage

log = logging.getLogger("realm.runner")


@dataclass
class _Running:
    """One job at work and the numbers it occupies."""

    runner: RunnerConfig
    project_id: int
    slot: int
    project_slot: int
    thread: threading.Thread | None = field(default=None)


class Service:
    """Serves all runners of one config.toml.

    Args:
        concurrent: jobs at a time over all runners; overrides the file's `concurrent`.
    """

    def __init__(self, config: Config, pace: Pace, concurrent: int | None = None) -> None:
        self._config = config
        self._pace = pace
        self._concurrent = concurrent or config.concurrent
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._running: list[_Running] = []
        self._stopped = Context()
        self._accepting = True
        self._coordinators = [(runner, Coordinator(runner)) for runner in config.runners]

    def stop(self, *, graceful: bool) -> None:
        """Take no more jobs; unless graceful, end the running ones too (they are reported as aborted)."""
        self._accepting = False
        if not graceful:
            self._stopped.cancel(JobAborted("the runner was stopped"))
        self._changed.set()

    def serve(self, *, once: bool) -> None:
        """Run until stopped, or with `once` until no job is left; returns when every job has ended."""
        interval = self._pace.poll if self._pace.poll is not None else self._config.check_interval
        while self._accepting:
            self._changed.clear()
            taken = [self._take(runner, coordinator) for runner, coordinator in self._coordinators]
            took = any(taken)
            if once and not took and not self._busy():
                break
            if not took:
                self._changed.wait(interval)
        self._drain()
        for _, coordinator in self._coordinators:
            coordinator.close()

    def _busy(self) -> bool:
        with self._lock:
            return bool(self._running)

    def _take(self, runner: RunnerConfig, coordinator: Coordinator) -> bool:
        with self._lock:
            own = sum(1 for item in self._running if item.runner is runner)
            full = len(self._running) >= self._concurrent or (runner.limit > 0 and own >= runner.limit)
        if full:
            return False
        try:
            payload = coordinator.request_job()
        except httpx2.HTTPError as error:
            log.warning("Checking for jobs... failed runner=%s error=%s", runner.short_token, type(error).__name__)
            return False
        if payload is None:
            return False
        log.info("Checking for jobs... received job=%s runner=%s", payload["id"], runner.short_token)
        project_id = int((payload.get("job_info") or {}).get("project_id") or 0)
        running = self._occupy(runner, project_id)
        slots = (running.slot, running.project_slot)
        passage = Passage(payload, runner, coordinator, self._pace, self._stopped, slots)
        running.thread = threading.Thread(target=self._work, args=(running, passage), name=f"job-{payload['id']}")
        running.thread.start()
        return True

    def _occupy(self, runner: RunnerConfig, project_id: int) -> _Running:
        with self._lock:
            mine = [item for item in self._running if item.runner is runner]
            slot = _lowest_free({item.slot for item in mine})
            project_slot = _lowest_free({item.project_slot for item in mine if item.project_id == project_id})
            running = _Running(runner, project_id, slot, project_slot)
            self._running.append(running)
            return running

    def _work(self, running: _Running, passage: Passage) -> None:
        try:
            passage.run()
        finally:
            with self._lock:
                self._running.remove(running)
            self._changed.set()

    def _drain(self) -> None:
        with self._lock:
            threads = [item.thread for item in self._running if item.thread is not None]
        for thread in threads:
            thread.join()


def _lowest_free(taken: set[int]) -> int:
    number = 0
    while number in taken:
        number += 1
    return number
