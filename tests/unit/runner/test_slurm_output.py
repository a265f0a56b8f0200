"""Parses output recorded from Slurm 22.05.8's squeue and sacct."""

from __future__ import annotations

from typing import Any

import pytest

from runner.login.slurm_output import UnreadableOutput, parse_sacct, parse_squeue

SQUEUE = """\
7|CANCELLED|15|snode|2026-11-20T22:23:15|None|
5|FAILED|768|snode|2026-11-20T22:23:15|NonZeroExitCode|
6|FAILED|9|snode|2026-11-20T22:23:15|JobLaunchFailure|
9|PENDING|0||2026-11-20T22:23:15|JobHeldUser|
"""

SACCT = """\
5|FAILED|3:0|snode|2026-11-20T22:23:15|None
6|FAILED|0:9|snode|2026-11-20T22:23:15|None
7|CANCELLED by 20001|0:0|snode|2026-11-20T22:23:15|None
8|PENDING|0:0|None assigned|2026-11-20T22:23:15|JobHeldUser
"""


def brief(jobs: list[dict[str, Any]]) -> list[tuple[str, str, int, int, str, str]]:
    return [tuple(job[key] for key in ("job_id", "state", "exit_code", "signal", "nodes", "reason")) for job in jobs]  # type: ignore[misc]


def test_squeues_wait_status_becomes_exit_code_and_signal() -> None:
    assert brief(parse_squeue(SQUEUE)) == [
        ("7", "CANCELLED", 0, 15, "snode", ""),
        ("5", "FAILED", 3, 0, "snode", "NonZeroExitCode"),
        ("6", "FAILED", 0, 9, "snode", "JobLaunchFailure"),
        ("9", "PENDING", 0, 0, "", "JobHeldUser"),
    ]


def test_saccts_pair_becomes_exit_code_and_signal() -> None:
    assert brief(parse_sacct(SACCT)) == [
        ("5", "FAILED", 3, 0, "snode", ""),
        ("6", "FAILED", 0, 9, "snode", ""),
        ("7", "CANCELLED", 0, 0, "snode", ""),
        ("8", "PENDING", 0, 0, "", "JobHeldUser"),
    ]


def test_a_reason_may_hold_the_separator() -> None:
    assert parse_sacct("8|PENDING|0:0|n||why | so")[0]["reason"] == "why | so"


def test_nothing_is_no_jobs() -> None:
    assert (parse_squeue(""), parse_sacct("")) == ([], [])


@pytest.mark.parametrize(
    "line", ["x", "5|FAILED", "5|FAILED|x|n|s|r|", "a|FAILED|0|n|s|r|", "5||0|n|s|r|", "5|F|-1|n|s|r|"]
)
def test_any_other_line_is_an_error(line: str) -> None:
    with pytest.raises(UnreadableOutput):
        parse_squeue(line)
    with pytest.raises(UnreadableOutput):
        parse_sacct(line)
