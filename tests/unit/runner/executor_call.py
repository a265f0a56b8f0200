"""Calls the executor as GitLab Runner does: a process of its own with the runner's environment and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from contract_bridge import RUN_ID, SESSION

ROOT = Path(__file__).resolve().parents[3]
EXECUTOR = ROOT / "deploy/bin/ci-bridge-executor"

BUILD, SYSTEM = 41, 42
"""Not the runner's usual codes, so that a hard-coded one would show."""

ID_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJjYW5hcnkiOiJpZC10b2tlbiJ9.c2lnbmF0dXJlLWNhbmFyeQ"
JOB_TOKEN = "glcbt-64_canary/job+token=="
LIMIT_SECONDS = 60.0

RESPONSE: dict[str, Any] = {
    "id": 4711,
    "token": JOB_TOKEN,
    "job_info": {
        "name": "test",
        "stage": "test",
        "project_id": 7,
        "project_name": "code",
        "project_full_path": "group/code",
        "pipeline_id": 99,
        "user_id": 5,
    },
    "git_info": {
        "repo_url": f"https://gitlab-ci-token:{JOB_TOKEN}@gitlab.example/group/code.git",
        "ref": "main",
        "sha": "a" * 40,
    },
    "runner_info": {"timeout": 3600},
    "variables": [{"key": "CI_BRIDGE_TOKEN", "value": ID_TOKEN}],
}


class Result:
    """How a call ended."""

    def __init__(self, process: subprocess.Popen[bytes], build_exit_code: Path) -> None:
        self.stdout, self.stderr = process.communicate(timeout=LIMIT_SECONDS)
        self.code = process.returncode
        self.build_exit_code = build_exit_code.read_text() if build_exit_code.exists() else None

    @property
    def said(self) -> str:
        """All that the call wrote."""
        return (self.stdout + self.stderr).decode(errors="replace")


class Runner:
    """A runner's host with a configured executor."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.config = directory / "executor.toml"
        self.configure(bridge_url=url)
        self.response = directory / "response.json"
        self.respond(RESPONSE)
        self.script = directory / "script"
        self.script.write_bytes(b"echo hello\n")
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(directory),
            "BUILD_FAILURE_EXIT_CODE": str(BUILD),
            "SYSTEM_FAILURE_EXIT_CODE": str(SYSTEM),
            "BUILD_EXIT_CODE_FILE": str(directory / "build_exit_code"),
            "JOB_RESPONSE_FILE": str(self.response),
            "CUSTOM_ENV_CI_BRIDGE_TOKEN": ID_TOKEN,
            "CUSTOM_ENV_CI_JOB_TOKEN": JOB_TOKEN,
        }

    def configure(self, **values: Any) -> None:
        """Write the executor's settings; time limits are short."""
        settings = {"lost_connection_seconds": 1, "cleanup_seconds": 1, "answer_seconds": 10, **values}
        self.config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
        self.config.chmod(0o600)

    def respond(self, response: Any) -> None:
        """Write the job's response file."""
        self.response.write_text(response if isinstance(response, str) else json.dumps(response))
        self.response.chmod(0o600)

    def admitted(self) -> Runner:
        """Have the later calls see what the config call left for them."""
        self.environment |= {"CI_BRIDGE_RUN": RUN_ID, "CI_BRIDGE_SESSION": SESSION}
        self.environment |= {"CI_BRIDGE_JOB_TOKEN_ON_NODES": "0"}
        return self

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a call."""
        return subprocess.Popen(
            [str(EXECUTOR), "--config", str(self.config), *arguments],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )

    def result(self, process: subprocess.Popen[bytes]) -> Result:
        """Wait for a call's end."""
        try:
            return Result(process, self.directory / "build_exit_code")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise

    def call(self, *arguments: str) -> Result:
        """Make a call and wait for its end."""
        return self.result(self.start(*arguments))

    def run(self, stage: str) -> Result:
        """Make the run call for a stage, or prepare's."""
        return self.call(*self.stage_arguments(stage))

    def stage_arguments(self, stage: str) -> list[str]:
        """Give the operands for a stage."""
        return ["prepare"] if stage == "prepare" else ["run", str(self.script), stage]
