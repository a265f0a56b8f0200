"""Parses what squeue and sacct print as text; their JSON is not used, as 22.05's loses exit codes."""

from __future__ import annotations

from typing import Any

SQUEUE_FORMAT = "JobID:|,State:|,exit_code:|,NodeList:|,SubmitTime:|,Reason:|"
"""Fields for ``squeue --Format`` with a suffix instead of a width (squeue(1)); nothing is cut off."""

SACCT_FORMAT = "JobIDRaw,State,ExitCode,NodeList,Submit,Reason"
"""Fields for ``sacct --parsable2 --format`` (sacct(1))."""

_FIELDS = 6


class UnreadableOutput(Exception):
    """A line is not in the format that was asked for."""


def parse_squeue(text: str) -> list[dict[str, Any]]:
    """Read squeue's lines; ``exit_code`` is there the status of wait(2): 768 is exit code 3, 9 is signal 9."""
    jobs = []
    for line in text.splitlines():
        job_id, state, status, nodes, submit, reason = _split(line.removesuffix("|"))
        if not status.isdigit():
            raise UnreadableOutput(line[:200])
        jobs.append(_job(job_id, state, int(status) >> 8 & 0xFF, int(status) & 0x7F, nodes, submit, reason))
    return jobs


def parse_sacct(text: str) -> list[dict[str, Any]]:
    """Read sacct's lines; ``ExitCode`` is there ``<exit code>:<signal>``."""
    jobs = []
    for line in text.splitlines():
        job_id, state, codes, nodes, submit, reason = _split(line)
        exit_code, _, signal = codes.partition(":")
        if not (exit_code.isdigit() and signal.isdigit()):
            raise UnreadableOutput(line[:200])
        jobs.append(_job(job_id, state, int(exit_code), int(signal), nodes, submit, reason))
    return jobs


def _split(line: str) -> list[str]:
    """Split one line; the reason comes last, as only it may hold the separator."""
    fields = line.split("|", _FIELDS - 1)
    if len(fields) != _FIELDS or not fields[0].isdigit() or not fields[1]:
        raise UnreadableOutput(line[:200])
    return fields


def _job(job_id: str, state: str, exit_code: int, signal: int, nodes: str, submit: str, reason: str) -> dict[str, Any]:
    """Compose one job of the contract; sacct says ``CANCELLED by 20001`` and ``None assigned``."""
    return {
        "job_id": job_id,
        "state": state.partition(" ")[0],
        "exit_code": exit_code,
        "signal": signal,
        "nodes": "" if nodes in ("None assigned", "(null)") else nodes,
        "reason": "" if reason == "None" else reason,
        "submit": submit,
    }
