"""The config call: has the job admitted by the bridge and tells GitLab Runner where it will build."""

from __future__ import annotations

import json
import signal
import types
from collections.abc import Mapping

from runner.executor.client import Client, bad_answer
from runner.executor.failures import CANCELLED, CallFailed, Unreachable
from runner.executor.job import Job, read_id_token, read_scheduler_parameters
from runner.executor.joblog import JobLog
from runner.executor.patience import unreachable
from runner.executor.run_env import RunHandle, from_answer
from runner.executor.settings import Settings

DRIVER_VERSION = "0.1.0"


class _Cancel:
    """Remembers a SIGTERM that comes during the admission, so that no admitted run stays behind unknown."""

    def __init__(self) -> None:
        self.wanted = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        self.wanted = True


def admit(settings: Settings, environ: Mapping[str, str], job: Job, log: JobLog) -> bytes:
    """Ask the bridge to admit the job; returns the JSON that config_exec prints on its standard output.

    Raises CallFailed. ``log`` gets who the job runs as, and why.
    """
    cancel = _Cancel()
    id_token = read_id_token(environ, settings.id_token)
    if id_token is None:
        log.say(f"The job has no id_token in the variable {settings.id_token}; asking with its job token alone")
    request = {
        "id_token": id_token,
        "job_token": job.job_token,
        "facts": job.facts,
        "scheduler_parameters": read_scheduler_parameters(environ),
        "cluster": settings.cluster,
    }
    if cancel.wanted:
        raise _cancelled()
    try:
        answer = Client(settings).call("POST", "/v1/runs", json.dumps(request).encode())
    except Unreachable as error:
        raise unreachable(error) from error
    handle = from_answer(answer)
    if cancel.wanted:
        _end(settings, handle)
        raise _cancelled()
    _tell(answer, log)
    return _config(answer, handle)


def _config(answer: Mapping[str, object], handle: RunHandle) -> bytes:
    """Compose config_exec's output (GitLab Runner, executors/custom/api: ConfigExecOutput)."""
    config = {
        "builds_dir": _path(answer, "builds_dir"),
        "cache_dir": _path(answer, "cache_dir"),
        "builds_dir_is_shared": False,
        "hostname": str(answer.get("cluster") or "cluster"),
        "driver": {"name": "ci-bridge", "version": DRIVER_VERSION},
        "job_env": handle.job_env(),
    }
    return json.dumps(config).encode() + b"\n"


def _tell(answer: Mapping[str, object], log: JobLog) -> None:
    """Write to the job log who the job runs as and why, until when, with what, and where to ask."""
    log.say(f"Running as {answer.get('account')} (uid {answer.get('uid')}) on {answer.get('cluster')}")
    log.say(f"Because: {answer.get('reason')}")
    log.say(f"Kerberos: {answer.get('principal')}, tickets until {answer.get('tickets_until')}")
    plan = answer.get("plan")
    if isinstance(plan, dict) and plan:
        log.say("Slurm: " + ", ".join(f"{key}={value}" for key, value in plan.items()))
    notes = answer.get("notes")
    for note in notes if isinstance(notes, list) else ():
        log.say(f"Note: {note}")
    log.say(f"Reference: {answer.get('reference')}")


def _path(answer: Mapping[str, object], key: str) -> str:
    path = answer.get(key)
    if not (isinstance(path, str) and path.startswith("/") and path.isprintable()):
        raise bad_answer(f"an answer without {key}")
    return path


def _end(settings: Settings, handle: RunHandle) -> None:
    try:
        Client(settings, handle.session).call("POST", f"/v1/runs/{handle.run_id}/finish", b"{}")
    except (CallFailed, Unreachable):
        return


def _cancelled() -> CallFailed:
    return CallFailed(CANCELLED, "executor.cancelled", "Cancelled during the admission.", "")
