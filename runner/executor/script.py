"""The run call's script: which stages there are, and what of a script may leave the runner's host."""

from __future__ import annotations

import os

from runner import wire
from runner.executor.failures import outage, refused
from runner.executor.run_env import RunHandle


def check_stage(name: str) -> None:
    """Accept the stages that GitLab Runner knows; raises CallFailed (refused ``executor.unknown_stage``)."""
    if not wire.is_stage(name):
        raise refused(
            "executor.unknown_stage",
            f"There is no stage {name[:64]!r}.",
            "Executor and GitLab Runner may be of versions that don't fit: tell the administrator.",
        )


def read_script(path: str) -> bytes:
    """Read the script that GitLab Runner wrote for a stage; raises CallFailed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            script = file.read(wire.MAX_DATA_BYTES + 1)
    except OSError as error:
        raise outage(
            "executor.script", f"The stage's script can't be read: {error.strerror}.", "Ask the administrator."
        ) from error
    if len(script) > wire.MAX_DATA_BYTES:
        raise refused(
            "executor.script_too_long",
            f"The stage's script is longer than {wire.MAX_DATA_BYTES} bytes.",
            "Large file variables are part of it: keep big data in the repository, an artifact or a cache.",
        )
    return script


def must_lose_job_token(stage: str, handle: RunHandle) -> bool:
    """Tell whether the job token must go from the stage's script, as the id_token goes from every script.

    It goes from what may run on a compute node: user code, after_script included wherever it runs. Helper stages need
    it to clone and to carry artifacts.
    """
    return wire.is_user_stage(stage) and not handle.job_token_on_nodes
