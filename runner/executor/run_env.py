"""Carries a run from the config call to the later calls, through the job_env that GitLab Runner gives back to us."""

from __future__ import annotations

from collections.abc import Mapping

from runner.executor.client import bad_answer
from runner.executor.failures import outage

RUN = "CI_BRIDGE_RUN"
SESSION = "CI_BRIDGE_SESSION"
JOB_TOKEN_ON_NODES = "CI_BRIDGE_JOB_TOKEN_ON_NODES"  # noqa: S105 - a name, not a secret


class RunHandle:
    """A run that was admitted: its id, its session secret, and whether scripts for nodes may hold the job token."""

    __slots__ = ("job_token_on_nodes", "run_id", "session")

    def __init__(self, run_id: str, session: str, *, job_token_on_nodes: bool) -> None:
        """Take values that ``_is_id`` and ``_is_secret`` accepted: they go into paths and headers."""
        self.run_id = run_id
        self.session = session
        self.job_token_on_nodes = job_token_on_nodes

    def job_env(self) -> dict[str, str]:
        """Give the variables for the later calls; none of them is ever taken from ``CUSTOM_ENV_*`` (T31)."""
        return {RUN: self.run_id, SESSION: self.session, JOB_TOKEN_ON_NODES: "1" if self.job_token_on_nodes else "0"}


def from_answer(answer: Mapping[str, object]) -> RunHandle:
    """Take the handle from the bridge's answer to the admission; raises CallFailed."""
    run_id, session = answer.get("run_id"), answer.get("session")
    if not (isinstance(run_id, str) and _is_id(run_id) and isinstance(session, str) and _is_secret(session)):
        raise bad_answer("an answer without a run")
    return RunHandle(run_id, session, job_token_on_nodes=answer.get("job_token_on_nodes") is True)


def from_environ(environ: Mapping[str, str]) -> RunHandle:
    """Take the handle from this call's environment; raises CallFailed (outage ``executor.no_run``)."""
    run_id, session = environ.get(RUN, ""), environ.get(SESSION, "")
    if not (_is_id(run_id) and _is_secret(session)):
        raise outage(
            "executor.no_run",
            "This call knows of no run that was admitted.",
            "Ask the runner's administrator: config_exec must call 'ci-bridge-executor config'.",
        )
    return RunHandle(run_id, session, job_token_on_nodes=environ.get(JOB_TOKEN_ON_NODES) == "1")


def _is_id(text: str) -> bool:
    return 0 < len(text) <= 64 and text.isascii() and text.isalnum()


def _is_secret(text: str) -> bool:
    return 16 <= len(text) <= 512 and text.isascii() and text.isprintable() and " " not in text
