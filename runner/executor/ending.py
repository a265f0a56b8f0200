"""Turns the end of a stage into what GitLab Runner reads: an exit code, and BUILD_EXIT_CODE_FILE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from runner import wire
from runner.executor.client import bad_answer
from runner.executor.failures import CANCELLED, OUTAGE, REFUSED, CallFailed, ExitCodes

_FAILURES = {wire.Outcome.REFUSED: REFUSED, wire.Outcome.OUTAGE: OUTAGE, wire.Outcome.CANCELLED: CANCELLED}

_SENTENCES = {
    wire.Outcome.REFUSED: "The bridge refused to go on.",
    wire.Outcome.OUTAGE: "Something that the bridge needs is down.",
    wire.Outcome.CANCELLED: "Cancelled, and confirmed by the bridge.",
}


def conclude(end: Mapping[str, Any], codes: ExitCodes, environ: Mapping[str, str]) -> int:
    """Give the exit code for an end frame; raises CallFailed for all but success and a failed script."""
    try:
        outcome = wire.Outcome(str(end.get("outcome")))
    except ValueError as error:
        raise bad_answer("an outcome of an unknown kind") from error
    if outcome is wire.Outcome.OK:
        return 0
    if outcome is wire.Outcome.SCRIPT_FAILED:
        _write_exit_code(end.get("exit_code"), environ.get("BUILD_EXIT_CODE_FILE", ""))
        return codes.build
    reason = end.get("error")
    told = reason if isinstance(reason, dict) else {}
    raise CallFailed(
        _FAILURES[outcome],
        str(told.get("code") or f"stage.{outcome}"),
        str(told.get("title") or _SENTENCES[outcome]),
        str(told.get("remedy") or ""),
        str(told.get("reference") or ""),
    )


def _write_exit_code(exit_code: object, path: str) -> None:
    """Write the script's exit code as the file's only content; GitLab Runner 17.9 and later reads it.

    A script that a signal ended has none, and then there must be no file: GitLab Runner takes anything but an integer
    for a failure of the system.
    """
    if not path or type(exit_code) is not int or not 0 < exit_code < 256:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(str(exit_code))
