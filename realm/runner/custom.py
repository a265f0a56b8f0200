"""The custom executor: config, prepare, run and cleanup calls of a driver, by GitLab Runner's contract."""

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from realm.runner.build import Build
from realm.runner.context import Context
from realm.runner.errors import BuildError, SystemFailure, UnknownFailure
from realm.runner.process import Call, Sink, run
from realm.runner.trace import Trace

BUILD_FAILURE_EXIT_CODE = 1
SYSTEM_FAILURE_EXIT_CODE = 2

log = logging.getLogger("realm.runner")


@dataclass(frozen=True)
class ConfigOutput:
    """What config_exec printed; an absent key is None."""

    builds_dir: str | None = None
    cache_dir: str | None = None
    builds_dir_is_shared: bool | None = None
    hostname: str | None = None
    shell: str | None = None
    driver_name: str | None = None
    driver_version: str | None = None
    job_env: dict[str, str] = field(default_factory=dict, repr=False)


class CustomExecutor:
    """One attempt at a job: a private folder, and the calls that share it."""

    def __init__(self, build: Build, trace: Trace) -> None:
        self._build = build
        self._trace = trace
        self._custom = build.runner.custom
        self._config = ConfigOutput()
        # "private 0700 temp dir": mkdtemp creates it so.
        self._folder = Path(tempfile.mkdtemp(prefix="custom-executor"))
        self._response_file = self._folder / "response.json"
        self._exit_code_file = self._folder / "build_exit_code"

    def prepare(self, context: Context) -> None:
        """config_exec, then prepare_exec.

        Raises:
            RunnerError: either failed, the config output is no valid JSON object, or the context ended.
        """
        self._write_response()
        self._configure(context)
        name, version = self._config.driver_name, self._config.driver_version
        with_driver = f" with driver {' '.join(filter(None, (name, version)))}" if name else ""
        self._trace.line(f"Using Custom executor{with_driver}...")
        runner, output = self._build.runner, self._config
        self._build.shell = output.shell or runner.shell
        if self._build.shell != "bash":
            raise BuildError(f"shell {self._build.shell} not found: this runner writes bash scripts only")
        self._build.start(
            runner.builds_dir if output.builds_dir is None else output.builds_dir,
            runner.cache_dir if output.cache_dir is None else output.cache_dir,
            shared=bool(output.builds_dir_is_shared),
        )
        if self._custom.prepare_exec:
            self._exec(
                [self._custom.prepare_exec, *self._custom.prepare_args], context, self._custom.prepare_exec_timeout
            )

    def run(self, script: str, stage: str, context: Context) -> None:
        """run_exec with a script file and the stage's name; there is no time-out but the context's."""
        folder = Path(tempfile.mkdtemp(prefix="script", dir=self._folder))
        path = folder / "script.bash"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(script)
        self._exec([self._custom.run_exec, *self._custom.run_args, str(path), stage], context, None)

    def cleanup(self) -> None:
        """cleanup_exec, whatever happened before; its output and failure go to the runner's log only."""
        try:
            if self._custom.cleanup_exec:
                argv = [self._custom.cleanup_exec, *self._custom.cleanup_args]
                context = Context(timeout=self._custom.cleanup_exec_timeout)
                code = run(self._call(argv, _logged(logging.DEBUG), _logged(logging.WARNING)), context)
                self._check(code)
        except (SystemFailure, BuildError) as error:
            log.warning("Cleanup script failed: %s job=%d", error, self._build.job.id)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self, context: Context) -> None:
        if not self._custom.config_exec:
            return
        printed = bytearray()
        argv = [self._custom.config_exec, *self._custom.config_args]
        self._exec(argv, context, self._custom.config_exec_timeout, stdout=printed.extend)
        self._config = parse_config_output(bytes(printed))

    def _exec(self, argv: Sequence[str], context: Context, timeout: float | None, stdout: Sink | None = None) -> None:
        code = run(self._call(argv, stdout or self._trace.write, self._trace.write), Context(context, timeout))
        if context.cause is not None:
            raise context.cause
        self._check(code)

    def _call(self, argv: Sequence[str], stdout: Sink, stderr: Sink) -> Call:
        return Call(
            argv=argv,
            environment=self._environment(),
            folder=self._folder,
            stdout=stdout,
            stderr=stderr,
            graceful_kill_seconds=self._custom.graceful_kill_timeout,
            force_kill_seconds=self._custom.force_kill_timeout,
        )

    def _environment(self) -> dict[str, str]:
        """The runner's own environment, the contract's variables, job_env, CUSTOM_ENV_*: the last of a name wins."""
        return {
            **os.environ,
            "TMPDIR": str(self._folder),
            "BUILD_FAILURE_EXIT_CODE": str(BUILD_FAILURE_EXIT_CODE),
            "SYSTEM_FAILURE_EXIT_CODE": str(SYSTEM_FAILURE_EXIT_CODE),
            "BUILD_EXIT_CODE_FILE": str(self._exit_code_file),
            "JOB_RESPONSE_FILE": str(self._response_file),
            **self._config.job_env,
            **{f"CUSTOM_ENV_{variable.key}": variable.value for variable in self._build.variables()},
        }

    def _write_response(self) -> None:
        descriptor = os.open(self._response_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(self._build.job.payload, file)

    def _check(self, code: int) -> None:
        """Translate an exit code by the contract."""
        if code == 0:
            return
        if code == BUILD_FAILURE_EXIT_CODE:
            raise self._build_failure()
        if code == SYSTEM_FAILURE_EXIT_CODE:
            raise SystemFailure(f"exit status {code}")
        raise _unknown(code, code)

    def _build_failure(self) -> BuildError | UnknownFailure:
        try:
            text = self._exit_code_file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return BuildError(f"exit status {BUILD_FAILURE_EXIT_CODE}", BUILD_FAILURE_EXIT_CODE)
        first = text.split("\n", 1)[0].removesuffix("\r")
        if not re.fullmatch(r"[+-]?[0-9]+", first):
            return _unknown(SYSTEM_FAILURE_EXIT_CODE, BUILD_FAILURE_EXIT_CODE)
        return BuildError(f"exit status {int(first)}", int(first))


def parse_config_output(printed: bytes) -> ConfigOutput:
    """Read config_exec's standard output: nothing, or one JSON object.

    Raises:
        SystemFailure: it is not, or a key has the wrong type; the runner retries that.
    """
    if not printed:
        return ConfigOutput()
    try:
        document = json.loads(printed)
    except ValueError as error:
        raise SystemFailure(f"error while parsing JSON output: {error}") from error
    if document is None:
        return ConfigOutput()
    if not isinstance(document, dict):
        raise SystemFailure("error while parsing JSON output: it is not an object")
    driver = _typed(document, "driver", dict) or {}
    job_env = _typed(document, "job_env", dict) or {}
    return ConfigOutput(
        builds_dir=_typed(document, "builds_dir", str),
        cache_dir=_typed(document, "cache_dir", str),
        builds_dir_is_shared=_typed(document, "builds_dir_is_shared", bool),
        hostname=_typed(document, "hostname", str),
        shell=_typed(document, "shell", str),
        driver_name=_typed(driver, "name", str),
        driver_version=_typed(driver, "version", str),
        job_env={key: _typed(job_env, key, str) or "" for key in job_env},
    )


def _typed(document: dict[str, Any], key: str, kind: type) -> Any:
    value = document.get(key)
    if value is not None and not isinstance(value, kind):
        raise SystemFailure(f"error while parsing JSON output: {key} is not of type {kind.__name__}")
    return value


def _unknown(shown: int, code: int) -> UnknownFailure:
    ended = f"signal {-code}" if code < 0 else f"exit status {code}"
    return UnknownFailure(
        f"unknown Custom executor executable exit code {shown}; executable execution terminated with: {ended}"
    )


def _logged(level: int) -> Sink:
    def sink(data: bytes) -> None:
        for text in data.decode(errors="replace").splitlines():
            log.log(level, "cleanup: %s", text)

    return sink
