"""Entry of the node agent: ``ci-bridge-node [--config FILE] prolog|epilog``, called by Slurm's scripts as root."""

from __future__ import annotations

import os
import sys
import syslog

from runner.executor import trusted_toml
from runner.node import hooks
from runner.node.job import NoJob, SlurmJob
from runner.node.place import BadPlace
from runner.node.settings import Settings

DEFAULT_CONFIG = "/etc/ci-bridge/node.toml"
USAGE_EXIT = 64


def main() -> int:
    """Perform the hook that the command line names; returns the exit code.

    A failing Prolog drains the node and holds the job, so it fails only for a job that says that it is the bridge's.
    The Epilog never fails: a cache that could not be removed expires by itself.
    """
    arguments = sys.argv[1:]
    config = DEFAULT_CONFIG
    if len(arguments) == 3 and arguments[0] == "--config":
        config = arguments[1]
        del arguments[:2]
    if arguments not in (["prolog"], ["epilog"]):
        print("usage: ci-bridge-node [--config FILE] prolog | epilog", file=sys.stderr)
        return USAGE_EXIT
    hook = arguments[0]
    syslog.openlog("ci-bridge-node", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
    try:
        job = SlurmJob(os.environ)
    except NoJob as error:
        _log(str(error), syslog.LOG_ERR)
        return USAGE_EXIT
    return _perform(hook, job, config)


def _perform(hook: str, job: SlurmJob, config: str) -> int:
    prefix = "ci-bridge"
    try:
        settings = Settings(config)
        prefix = settings.comment_prefix
        message = hooks.prolog(settings, job) if hook == "prolog" else hooks.epilog(settings, job)
    except (trusted_toml.Untrusted, hooks.Failed, BadPlace, OSError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - no stack trace on the node, and every job gets its answer
        reason = f"defect: {type(error).__name__}"
    else:
        _log(message, syslog.LOG_INFO)
        return 0
    _log(f"{hook} of job {job.job_id}: {reason}", syslog.LOG_ERR)
    return 1 if hook == "prolog" and job.looks_like_ours(prefix) else 0


def _log(message: str, level: int) -> None:
    line = "".join(letter if letter.isprintable() else "?" for letter in message[:1000])
    syslog.syslog(level, line)
    print(f"ci-bridge-node: {line}", file=sys.stderr)
