"""Performs one call of GitLab Runner, and sees to it that every failure is one clear line and the right exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from runner.executor import settings as settings_file
from runner.executor.failures import BadEnvironment, CallFailed, ExitCodes, outage
from runner.executor.joblog import JobLog, LogClosed
from runner.executor.main import USAGE_EXIT

STDOUT, STDERR = 1, 2


def perform(verb: str, operands: list[str], config: str) -> int:
    """Perform the call ``verb``; returns the process's exit code and never raises.

    config's standard output belongs to its JSON, and cleanup's to the runner's debug log, so both talk on standard
    error; prepare and run write to standard output only, which keeps lines in order.
    """
    log = JobLog(STDERR if verb in ("config", "cleanup") else STDOUT)
    log.mask(os.environ.get("CI_BRIDGE_SESSION", ""), os.environ.get("CUSTOM_ENV_CI_JOB_TOKEN", ""))
    try:
        codes = ExitCodes(os.environ)
    except BadEnvironment as error:
        if verb == "cleanup":
            return _guarded(verb, operands, config, log, None)
        print(f"ci-bridge: {error}", file=sys.stderr)
        return USAGE_EXIT
    return _guarded(verb, operands, config, log, codes)


def _guarded(verb: str, operands: list[str], config: str, log: JobLog, codes: ExitCodes | None) -> int:
    try:
        return _dispatch(verb, operands, config, log, codes)
    except CallFailed as failure:
        problem = failure
    except LogClosed:
        problem = outage("executor.log_closed", "The job log was closed.", "")
    except Exception as error:  # noqa: BLE001 - a stack trace must not reach the job log, nor a value from it
        problem = _defect(error)
    with contextlib.suppress(LogClosed, OSError):
        log.fail(problem)
    return codes.of(problem.outcome) if codes and verb != "cleanup" else 0


def _dispatch(verb: str, operands: list[str], config: str, log: JobLog, codes: ExitCodes | None) -> int:
    if verb == "run":
        from runner.executor.script import check_stage

        check_stage(operands[1])
    settings = settings_file.load(config)
    environ = os.environ
    log.mask(environ.get(f"CUSTOM_ENV_{settings.id_token}", ""))
    if verb == "config":
        return _config(settings, environ, log)
    if verb == "cleanup" or codes is None:
        from runner.executor.finish import finish

        finish(settings, environ, log)
        return 0
    return _stage(settings, environ, log, codes, operands)


def _config(settings: settings_file.Settings, environ: Mapping[str, str], log: JobLog) -> int:
    from runner.executor.admit import admit
    from runner.executor.job import read_job

    job = read_job(environ, settings.id_token)
    log.mask(job.job_token, *job.id_tokens)
    JobLog(STDOUT).raw(admit(settings, environ, job, log))
    return 0


def _stage(
    settings: settings_file.Settings, environ: Mapping[str, str], log: JobLog, codes: ExitCodes, operands: list[str]
) -> int:
    """Run a stage: ``prepare`` where there are no operands, else the script and stage that they name."""
    from runner.executor.client import Client
    from runner.executor.ending import conclude
    from runner.executor.job import read_id_token, read_job
    from runner.executor.patience import Patience
    from runner.executor.redact import remove
    from runner.executor.run_env import from_environ
    from runner.executor.script import must_lose_job_token, read_script
    from runner.executor.stage import Stage

    handle = from_environ(environ)
    name, script, job_token = "prepare", b"", ""
    if operands:
        path, name = operands
        job = read_job(environ, settings.id_token)
        job_token = job.job_token
        log.mask(job_token, *job.id_tokens)
        token = read_id_token(environ, settings.id_token)
        secrets = [*([token] if token else []), *job.id_tokens]
        if must_lose_job_token(name, handle):
            secrets.append(job_token)
        script = remove(read_script(path), secrets)
    patience = Patience(log, settings.lost_connection_seconds)
    client = Client(settings, handle.session, job_token=job_token)
    stage = Stage(client, log, handle.run_id, patience)
    return conclude(stage.perform(name, script), codes, environ)


def _defect(error: Exception) -> CallFailed:
    """Name the place of an error that nobody expected, never its text: that could hold anything."""
    frame, place = error.__traceback__, "unknown"
    while frame is not None:
        place = f"{frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno}"
        frame = frame.tb_next
    return outage(
        "executor.defect",
        f"The executor has a defect: {type(error).__name__} at {place}.",
        "Tell the administrator this line.",
    )
