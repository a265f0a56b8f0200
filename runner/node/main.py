"""Entry of the node agent, as root: ``ci-bridge-node [--config FILE]`` with ``prolog`` or ``epilog``, called by Slurm's
scripts, or ``refresh``, called by a timer.
"""

from __future__ import annotations

import os
import sys
import syslog

from runner.executor import trusted_toml
from runner.node import asking, hooks, refusal
from runner.node.job import NoJob, SlurmJob
from runner.node.place import BadPlace
from runner.node.refresh import refresh
from runner.node.settings import Settings

DEFAULT_CONFIG = "/etc/ci-bridge/node.toml"
USAGE_EXIT = 64


def main() -> int:
    """Perform what the command line names; returns the exit code.

    A failing Prolog would drain the node, so a job without tickets is ended by its own wrapper, which finds our word.
    Only where that can't be left does the Prolog of a bridge job fail. The Epilog never fails: a cache that could not
    be removed expires by itself.
    """
    arguments = sys.argv[1:]
    config = DEFAULT_CONFIG
    if len(arguments) == 3 and arguments[0] == "--config":
        config = arguments[1]
        del arguments[:2]
    if arguments not in (["prolog"], ["epilog"], ["refresh"]):
        print("usage: ci-bridge-node [--config FILE] prolog | epilog | refresh", file=sys.stderr)
        return USAGE_EXIT
    hook = arguments[0]
    syslog.openlog("ci-bridge-node", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
    if hook == "refresh":
        return _refresh(config)
    try:
        job = SlurmJob(os.environ)
    except NoJob as error:
        _log(str(error), syslog.LOG_ERR)
        return USAGE_EXIT
    return _perform(hook, job, config)


def _perform(hook: str, job: SlurmJob, config: str) -> int:
    settings = None
    try:
        settings = Settings(config)
        if hook == "epilog":
            refusal.remove(settings.refusal_directory, job.job_id)
        message = hooks.prolog(settings, job) if hook == "prolog" else hooks.epilog(settings, job)
    except (trusted_toml.Untrusted, asking.Failed, BadPlace, OSError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - no stack trace on the node, and every job gets its answer
        reason = f"defect: {type(error).__name__}"
    else:
        _log(message, syslog.LOG_INFO)
        return 0
    _log(f"{hook} of job {job.job_id}: {reason}", syslog.LOG_ERR)
    if hook == "epilog":
        return 0
    if settings is None:
        # A node that is set up wrongly is one to be drained.
        return 1 if job.looks_like_ours("ci-bridge") else 0
    return _refuse(settings, job, reason) if job.looks_like_ours(settings.comment_prefix) else 0


def _refresh(config: str) -> int:
    try:
        said = refresh(Settings(config))
    except (trusted_toml.Untrusted, BadPlace, OSError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - no stack trace on the node; the next tick tries again
        reason = f"defect: {type(error).__name__}"
    else:
        for message in said:
            _log(message, syslog.LOG_INFO)
        return 0
    _log(f"refresh: {reason}", syslog.LOG_ERR)
    return 1


def _refuse(settings: Settings, job: SlurmJob, reason: str) -> int:
    try:
        refusal.leave(settings.refusal_directory, job.job_id, reason)
    except OSError as error:
        _log(f"prolog of job {job.job_id}: no word could be left: {error.strerror}", syslog.LOG_ERR)
        return 1
    return 0


def _log(message: str, level: int) -> None:
    line = "".join(letter if letter.isprintable() else "?" for letter in message[:1000])
    syslog.syslog(level, line)
    print(f"ci-bridge-node: {line}", file=sys.stderr)
