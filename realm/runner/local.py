"""The driver as a child process beside a stand-in on loopback, for tests without a realm."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from realm.gitlab.local import LocalGitLab

STOP_SECONDS = 30


class LocalRunner:
    """Serves the jobs of one tag with a given driver program.

    Args:
        folder: for config.toml, the helper's PATH entry and the driver's log.
        driver: an executable that is called with config, prepare, run or cleanup.
        environment: what to add to the runner's environment.
        custom: more lines for `[runners.custom]`, as TOML values by key.
        runner: more lines for `[[runners]]`.
    """

    def __init__(
        self,
        gitlab: LocalGitLab,
        folder: Path,
        driver: Path,
        *,
        tag: str,
        jobs: int = 8,
        environment: dict[str, str] | None = None,
        custom: dict[str, int] | None = None,
        runner: dict[str, int | str] | None = None,
    ) -> None:
        self._folder = folder
        self._jobs = jobs
        handle = gitlab.control.create_runner("loopback", tags=[tag], run_untagged=False)
        self.runner_id = handle.id
        self.config = folder / "config.toml"
        top: dict[str, int | str] = {
            "name": "loopback",
            "url": gitlab.url,
            "token": handle.token,
            "executor": "custom",
            "shell": "bash",
            "tls-ca-file": str(gitlab.files.ca),
            **(runner or {}),
        }
        calls = {name: (str(driver), [name]) for name in ("config", "prepare", "run", "cleanup")}
        lines = ["[[runners]]", *(f"{key} = {json.dumps(value)}" for key, value in top.items()), "[runners.custom]"]
        for name, (program, arguments) in calls.items():
            lines += [f"{name}_exec = {json.dumps(program)}", f"{name}_args = {json.dumps(arguments)}"]
        lines += [f"{key} = {value}" for key, value in (custom or {}).items()]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._environment = {**os.environ, **_fast(), **(environment or {})}
        self._environment["PATH"] = f"{self._helper_folder()}:{self._environment['PATH']}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "realm.runner", "--end-with-parent", "--config", str(self.config)]
        command += ["run", "--jobs", str(self._jobs)]
        with (self._folder / "runner.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def pid(self) -> int:
        """The driver's process id, to send it signals."""
        if self._process is None:
            raise RuntimeError("the runner was not started")
        return self._process.pid

    def wait(self, seconds: float) -> int:
        """Wait for the driver's own end and return its exit code."""
        if self._process is None:
            raise RuntimeError("the runner was not started")
        return self._process.wait(seconds)

    @property
    def log(self) -> str:
        """What the driver logged so far."""
        return (self._folder / "runner.log").read_text(encoding="utf-8")

    def _helper_folder(self) -> Path:
        folder = self._folder / "bin"
        folder.mkdir()
        (folder / "gitlab-runner").symlink_to(Path(__file__).with_name("helper_binary.py"))
        return folder


def _fast() -> dict[str, str]:
    return {
        "REALM_RUNNER_PREPARE_RETRY_SECONDS": "0.05",
        "REALM_RUNNER_TRACE_SECONDS": "0.1",
        "REALM_RUNNER_TOUCH_SECONDS": "0.2",
        "REALM_RUNNER_POLL_SECONDS": "0.03",
    }
