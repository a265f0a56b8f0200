"""One job from its payload to its final state: prepare with retries, run the stages, clean up, report."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from realm.runner.build import Build
from realm.runner.config import RunnerConfig
from realm.runner.context import Context
from realm.runner.coordinator import REVISION, VERSION, Coordinator
from realm.runner.custom import CustomExecutor
from realm.runner.errors import (
    UNKNOWN_FAILURE,
    BuildError,
    JobAborted,
    JobCanceled,
    JobTimeout,
    RunnerError,
    SystemFailure,
)
from realm.runner.job import Job
from realm.runner.masking import Masker
from realm.runner.pace import Pace
from realm.runner.sections import section
from realm.runner.stage_runner import StageRunner
from realm.runner.trace import Trace
from realm.runner.variables import secrets_of

PREPARE_ATTEMPTS = 3
FINISH_SECONDS = 300
"""How long an ended job may take to wind its current stage down before cleanup starts without it."""

RED = "\x1b[31;1m"
GREEN = "\x1b[32;1m"

log = logging.getLogger("realm.runner")


class Passage:
    """Takes one job through; `stopped` ends when the runner itself is told to stop."""

    def __init__(
        self,
        payload: dict[str, Any],
        runner: RunnerConfig,
        coordinator: Coordinator,
        pace: Pace,
        stopped: Context,
        slots: tuple[int, int],
    ) -> None:
        job = Job.from_payload(payload)
        self._build = Build(job, runner, slot=slots[0], project_slot=slots[1], shell=runner.shell)
        self._pace = pace
        self._context = Context(stopped, job.timeout, lambda: JobTimeout(job.timeout))
        masker = Masker(secrets_of(self._build.variables(), job.token), job.mask_prefixes)
        limit = runner.output_limit_kib * 1024
        self._trace = Trace(coordinator, job.id, job.token, masker, limit, pace)

    def run(self) -> None:
        """Never raises: whatever happens is told to the server as the job's end."""
        self._trace.start(lambda: self._context.cancel(JobAborted("the server ended the job")))
        runner = self._build.runner
        self._trace.line(f"Running with gitlab-runner {VERSION} ({REVISION})")
        self._trace.line(f"  on {runner.name} {runner.short_token}")
        try:
            self._prepared_and_run()
            failure = None
        except RunnerError as error:
            failure = error
        except Exception as error:  # a bug here must still end the job at the server
            log.exception("job=%d failed inside the runner", self._build.job.id)
            failure = SystemFailure(f"internal error: {type(error).__name__}")
        self._report(failure)

    def _prepared_and_run(self) -> None:
        with section(self._trace, "prepare_executor"):
            executor = self._prepare()
        try:
            stages = StageRunner(self._build, executor, self._trace, self._context)
            _within(stages.run, self._context)
        finally:
            executor.cleanup()

    def _prepare(self) -> CustomExecutor:
        """config and prepare together, up to three times; a build failure is final."""
        seconds = self._build.runner.prepare_timeout
        context = Context(self._context, seconds or None, lambda: SystemFailure("prepare: context deadline exceeded"))
        failure: RunnerError = SystemFailure("preparation failed")
        for _ in range(PREPARE_ATTEMPTS):
            executor = CustomExecutor(self._build, self._trace)
            try:
                executor.prepare(context)
                return executor
            except BuildError:
                executor.cleanup()
                raise
            except RunnerError as error:
                executor.cleanup()
                failure = error
            except BaseException:
                executor.cleanup()
                raise
            if context.cause is not None:
                raise context.cause
            self._trace.line(f"{RED}ERROR: Preparation failed: {failure}")
            self._trace.line(f"Will be retried in {self._pace.prepare_retry:g}s ...")
            context.wait(self._pace.prepare_retry)
        raise failure

    def _report(self, failure: RunnerError | None) -> None:
        job_id = self._build.job.id
        if failure is None:
            self._trace.line(f"{GREEN}Job succeeded")
            self._trace.finish("success", None, None)
        elif isinstance(failure, BuildError):
            self._trace.line(f"{RED}ERROR: Job failed: {failure}")
            self._trace.finish("failed", failure.reason, failure.exit_code)
        elif isinstance(failure, JobTimeout | JobCanceled):
            self._trace.line(f"{RED}ERROR: Job failed: {failure}")
            self._trace.finish("failed", failure.reason, None)
        else:
            self._trace.line(f"{RED}ERROR: Job failed (system failure): {failure}")
            self._trace.finish("failed", failure.reason or UNKNOWN_FAILURE, None)
        log.info("job=%d ended: %s", job_id, "success" if failure is None else failure)


def _within(work: Callable[[], None], context: Context) -> None:
    """Do the work; once the context ends, wait for it FINISH_SECONDS at most."""
    done = threading.Event()
    wake = threading.Event()
    caught: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            caught.append(error)
        done.set()
        wake.set()

    threading.Thread(target=body, name="stages", daemon=True).start()
    while not done.is_set() and context.cause is None:
        context.wait_for(wake)
    if not done.wait(FINISH_SECONDS):
        raise context.cause or SystemFailure("the build did not finish in time")
    if caught:
        raise caught[0]
