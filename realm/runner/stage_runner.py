"""Runs the stages of a prepared build in the runner's order, with its attempts, time-outs and cancel rules."""

from collections.abc import Mapping
from typing import Any

from realm.runner.build import Build
from realm.runner.context import Context
from realm.runner.custom import CustomExecutor
from realm.runner.errors import JOB_TIMEOUT, BuildError, JobCanceled, RunnerError, SystemFailure
from realm.runner.sections import section
from realm.runner.shell import RESET, YELLOW
from realm.runner.stages import PREDEFINED, archive_cache, upload_artifacts, user_step
from realm.runner.trace import Trace
from realm.runner.variables import attempts, duration

AFTER_SCRIPT_SECONDS = 300


class StageRunner:
    """The sub-stages of one build on one executor."""

    def __init__(self, build: Build, executor: CustomExecutor, trace: Trace, context: Context) -> None:
        self._build = build
        self._executor = executor
        self._trace = trace
        self._context = context

    def run(self) -> None:
        """All stages; raises what the job failed of, after the stages that still have to run did.

        Raises:
            RunnerError: the first failure, a cancel, or the end of the job's context.
        """
        try:
            self._predefined("prepare_script")
        except BuildError as error:
            raise BuildError(f"prepare environment: {error}", error.exit_code) from error
        failure = self._sources_and_inputs()
        if failure is None:
            failure = self._user_scripts()
        saved = self._archive(failure)
        sent = self._upload(failure)
        self._quietly("cleanup_file_variables")
        for problem in (failure, saved, sent):
            if problem is not None:
                raise problem

    def _sources_and_inputs(self) -> RunnerError | None:
        try:
            self._repeated("get_sources", "GET_SOURCES_ATTEMPTS", self._build.runner.get_sources_timeout)
            self._repeated("restore_cache", "RESTORE_CACHE_ATTEMPTS")
            self._repeated("download_artifacts", "ARTIFACT_DOWNLOAD_ATTEMPTS")
        except RunnerError as error:
            self._stop_if_over()
            return error
        return None

    def _repeated(self, stage: str, key: str, timeout: float = 0) -> None:
        """Run a stage until it succeeds; here, unlike elsewhere, any kind of error is tried again."""
        try:
            tries = attempts(self._build.variables(), key)
        except ValueError as error:
            raise BuildError(str(error)) from error
        context = Context(self._context, timeout or None, lambda: SystemFailure(f"{stage}: context deadline exceeded"))
        for number in range(1, tries + 1):
            try:
                if number > 1 and stage == "get_sources":
                    self._predefined("clear_worktree", context)
                self._predefined(stage, context)
                return
            except RunnerError:
                if number == tries or context.cause is not None:
                    raise

    def _user_scripts(self) -> RunnerError | None:
        """The script phase, which is all that a cancel ends, and after_script."""
        script = Context(self._context)
        self._trace.set_cancel(lambda: script.cancel(JobCanceled()))
        try:
            self._steps(script)
            failure = None
        except RunnerError as error:
            failure = error
        finally:
            self._trace.set_cancel(None)
        self._stop_if_over()
        return self._after_script(failure)

    def _steps(self, script: Context) -> None:
        seconds = duration(self._build.variables(), "RUNNER_SCRIPT_TIMEOUT", None)
        limited = Context(
            script, seconds, lambda: BuildError("script timeout context: deadline exceeded", 1, JOB_TIMEOUT)
        )
        for step in self._build.job.steps:
            if step["name"] != "after_script":
                name = "build_script" if step["name"] == "script" else f"step_{step['name']}"
                self._stage(name, user_step(self._build, step), limited)

    def _after_script(self, failure: RunnerError | None) -> RunnerError | None:
        states: Mapping[type, str] = {type(None): "success", JobCanceled: "canceled"}
        self._build.status = states.get(type(failure), "failed")
        step = next((step for step in self._build.job.steps if step["name"] == "after_script"), None)
        if step is None:
            return failure
        return self._guarded_after_script(step, failure)

    def _guarded_after_script(self, step: Mapping[str, Any], failure: RunnerError | None) -> RunnerError | None:
        variables = self._build.variables()
        seconds = duration(variables, "RUNNER_AFTER_SCRIPT_TIMEOUT", AFTER_SCRIPT_SECONDS)
        context = Context(self._context, seconds, lambda: SystemFailure("after_script: deadline exceeded"))
        try:
            self._stage("after_script", user_step(self._build, step), context)
        except RunnerError as error:
            self._stop_if_over()
            if self._build.lookup("AFTER_SCRIPT_IGNORE_ERRORS", "true") == "false":
                return failure or error
            text = f"WARNING: after_script failed, but job will continue unaffected: {error}"
            self._trace.line(f"{YELLOW}{text}{RESET}")
        return failure

    def _archive(self, failure: RunnerError | None) -> RunnerError | None:
        name = "archive_cache" if failure is None else "archive_cache_on_failure"
        return self._kept(name, archive_cache(self._build, succeeded=failure is None))

    def _upload(self, failure: RunnerError | None) -> RunnerError | None:
        name = f"upload_artifacts_on_{'success' if failure is None else 'failure'}"
        return self._kept(name, upload_artifacts(self._build, succeeded=failure is None))

    def _kept(self, stage: str, script: str | None) -> RunnerError | None:
        """Run a stage and hand its failure back, unless the whole job is over."""
        try:
            self._stage(stage, script, self._context)
        except RunnerError as error:
            self._stop_if_over()
            return error
        return None

    def _quietly(self, stage: str) -> None:
        error = self._kept(stage, PREDEFINED[stage](self._build))
        if error is not None:
            self._trace.line(f"{YELLOW}WARNING: {stage} failed: {error}{RESET}")

    def _predefined(self, stage: str, context: Context | None = None) -> None:
        self._stage(stage, PREDEFINED[stage](self._build), context or self._context)

    def _stage(self, name: str, script: str | None, context: Context) -> None:
        if context.cause is not None:
            raise context.cause
        if script is not None:
            with section(self._trace, name):
                self._executor.run(script, name, context)

    def _stop_if_over(self) -> None:
        """When the job's own context has ended, no later stage runs."""
        if self._context.cause is not None:
            raise self._context.cause
