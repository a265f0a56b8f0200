#!/usr/bin/python3 -ISs
"""A driver of the custom executor for tests: obeys the job variable PLAN, and journals how it was called.

PLAN is a JSON object from call or stage to an outcome, or a list of outcomes for successive attempts:
ok, run (the default of run stages: execute the script), build, system, an integer exit code, {"code_file": text},
{"print": text} (to standard output), hang, hang-ignoring-term, killed.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STAGES = {
    "prepare_script",
    "get_sources",
    "clear_worktree",
    "restore_cache",
    "download_artifacts",
    "build_script",
    "step_release",
    "after_script",
    "archive_cache",
    "archive_cache_on_failure",
    "upload_artifacts_on_success",
    "upload_artifacts_on_failure",
    "cleanup_file_variables",
}
ROOT = Path(os.environ["FAKE_ROOT"])
JOB = os.environ.get("CUSTOM_ENV_CI_JOB_ID", "none")
JOURNAL = ROOT / f"journal-{JOB}.jsonl"


def main() -> int:
    """One call of the contract."""
    call = sys.argv[1]
    name = call
    if call == "run":
        script, name = sys.argv[2:]
        if name not in STAGES:
            sys.stderr.write(f"unknown stage {name}\n")
            return int(os.environ["SYSTEM_FAILURE_EXIT_CODE"])
    attempt = sum(1 for line in _journal() if line["name"] == name)
    _write_journal(call, name)
    plan = json.loads(os.environ.get("CUSTOM_ENV_PLAN", "{}")).get(name, "run" if call == "run" else "ok")
    if isinstance(plan, list):
        plan = plan[min(attempt, len(plan) - 1)]
    return _execute(script) if plan == "run" else _obey(plan, call)


def _obey(plan: object, call: str) -> int:
    build, system = (int(os.environ[f"{kind}_FAILURE_EXIT_CODE"]) for kind in ("BUILD", "SYSTEM"))
    if isinstance(plan, int):
        return plan
    if isinstance(plan, dict) and "code_file" in plan:
        Path(os.environ["BUILD_EXIT_CODE_FILE"]).write_text(plan["code_file"])
        return build
    if isinstance(plan, dict):
        sys.stdout.write(plan["print"])
        return 0
    if str(plan).startswith("hang"):
        if plan == "hang-ignoring-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stderr.write("driver is hanging\n")
        sys.stderr.flush()
        while True:
            signal.pause()
    if plan == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan == "ok" and call == "config":
        sys.stdout.write(json.dumps(_config()))
    if call == "cleanup":
        sys.stderr.write("cleanup was here\n")
    return {"build": build, "system": system}.get(str(plan), 0)


def _config() -> dict:
    return {
        "builds_dir": str(ROOT / f"builds-{JOB}"),
        "cache_dir": str(ROOT / "cache"),
        "driver": {"name": "fake", "version": "1.2.3"},
        "job_env": {
            "FAKE_SESSION": "from-config",
            "TMPDIR": "/shadowed-by-job-env",
            "CUSTOM_ENV_SHADOW": "from-job-env",
        },
        "ignored": 7,
    }


def _execute(script: str) -> int:
    code = subprocess.run(["bash", script], check=False).returncode
    if code == 0:
        return 0
    Path(os.environ["BUILD_EXIT_CODE_FILE"]).write_text(f"{code}\n")
    return int(os.environ["BUILD_FAILURE_EXIT_CODE"])


def _journal() -> list:
    return [json.loads(line) for line in JOURNAL.read_text().splitlines()] if JOURNAL.exists() else []


def _write_journal(call: str, name: str) -> None:
    response = Path(os.environ["JOB_RESPONSE_FILE"])
    line = {
        "call": call,
        "name": name,
        "own_group": os.getpgid(0) == os.getpid(),
        "cwd": str(Path.cwd()),
        "cwd_mode": oct(Path().stat().st_mode & 0o777),
        "stdin": sys.stdin.buffer.read().decode(),
        "response_mode": oct(response.stat().st_mode & 0o777),
        "response_id": json.loads(response.read_text())["id"],
        "script_mode": oct(Path(sys.argv[2]).stat().st_mode & 0o777) if call == "run" else None,
        "script": Path(sys.argv[2]).name if call == "run" else None,
        "text": Path(sys.argv[2]).read_text() if call == "run" else None,
        "environment": {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("CUSTOM_ENV_", "BUILD_", "SYSTEM_", "FAKE_")) or key == "TMPDIR"
        },
    }
    with JOURNAL.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
