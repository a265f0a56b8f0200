"""The verbs that work on Slurm jobs: submit, release, cancel, find, state."""

from __future__ import annotations

import time
from typing import Any

from runner.login.call import Call
from runner.login.failures import VerbFailed, malformed
from runner.login.request import Request
from runner.login.slurm_output import SACCT_FORMAT, SQUEUE_FORMAT, UnreadableOutput, parse_sacct, parse_squeue
from runner.login.tools import NOT_YET

MAX_ARGUMENTS = 200
IDS_PER_COMMAND = 1000

FIND_SINCE = "now-60days"
"""sacct looks for a name from today's midnight on unless told otherwise."""

RELEASE_SECONDS = 20.0
RELEASE_PAUSE_SECONDS = 0.2

_UNKNOWN_ID = "Invalid job id specified"
_ENDED = "Job has already finished"


def submit(request: Request, call: Call) -> dict[str, Any]:
    """Run ``sbatch --parsable`` with the given arguments; returns job_id and cluster."""
    argv = request.texts("argv")
    if not 0 < len(argv) <= MAX_ARGUMENTS:
        raise malformed(f"argv must have 1 to {MAX_ARGUMENTS} entries")
    said = call.tools.run("sbatch", ["--parsable", *argv]).strip()
    job_id, _, cluster = said.partition(";")
    if not job_id.isdigit():
        raise _unreadable("sbatch", said)
    return {"job_id": job_id, "cluster": cluster or None}


def release(request: Request, call: Call) -> dict[str, Any]:
    """Release a held job; again for a while where slurmctld is just giving the job its row in the accounting."""
    job_id, deadline = _job_id(request.text("job_id")), time.monotonic() + RELEASE_SECONDS
    while True:
        try:
            call.tools.run("scontrol", ["release", job_id])
        except VerbFailed as failure:
            if NOT_YET not in failure.detail or time.monotonic() >= deadline:
                raise
            time.sleep(RELEASE_PAUSE_SECONDS)
        else:
            return {}


def cancel(request: Request, call: Call) -> dict[str, Any]:
    """Cancel a job, or send it a signal; one that is gone is fine."""
    signal = request.optional_text("signal")
    if signal is not None and not (signal.isascii() and signal.isalnum()):
        raise malformed("signal must be a name or a number")
    arguments = [f"--signal={signal}"] if signal else []
    try:
        call.tools.run("scancel", [*arguments, _job_id(request.text("job_id"))])
    except VerbFailed as failure:
        if _UNKNOWN_ID not in failure.detail and _ENDED not in failure.detail:
            raise
    return {}


def find(request: Request, call: Call) -> dict[str, Any]:
    """Give all jobs of the user with exactly this name, from squeue and, where it forgot them, from sacct."""
    name = request.text("name")
    if not (0 < len(name) <= 128 and name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
        raise malformed("name must be letters, digits, - and _")
    uid = str(call.user.uid)
    jobs = _squeue(call, [f"--user={uid}", f"--name={name}"])
    known = {job["job_id"] for job in jobs}
    ended = _sacct(call, [f"--uid={uid}", f"--name={name}", f"--starttime={FIND_SINCE}"])
    return {"jobs": jobs + [job for job in ended if job["job_id"] not in known]}


def state(request: Request, call: Call) -> dict[str, Any]:
    """Give the jobs with these ids: squeue's word where it has one, as sacct may lag behind; else sacct's."""
    wanted = [_job_id(text) for text in request.texts("job_ids")]
    jobs: list[dict[str, Any]] = []
    for start in range(0, len(wanted), IDS_PER_COMMAND):
        ids = wanted[start : start + IDS_PER_COMMAND]
        found = _squeue(call, [f"--jobs={','.join(ids)}"])
        missing = sorted(set(ids) - {job["job_id"] for job in found}, key=int)
        jobs += found + (_sacct(call, [f"--jobs={','.join(missing)}"]) if missing else [])
    return {"jobs": jobs}


def _squeue(call: Call, selection: list[str]) -> list[dict[str, Any]]:
    """Ask slurmctld, in one command; a single id that it does not know is an error there, and an empty answer here."""
    try:
        said = call.tools.run(
            "squeue", ["--noheader", "--all", "--states=all", *selection, f"--Format={SQUEUE_FORMAT}"]
        )
        return parse_squeue(said)
    except VerbFailed as failure:
        if _UNKNOWN_ID in failure.detail:
            return []
        raise
    except UnreadableOutput as error:
        raise _unreadable("squeue", str(error)) from error


def _sacct(call: Call, selection: list[str]) -> list[dict[str, Any]]:
    arguments = ["--allocations", "--parsable2", "--noheader", *selection, f"--format={SACCT_FORMAT}"]
    try:
        return parse_sacct(call.tools.run("sacct", arguments))
    except UnreadableOutput as error:
        raise _unreadable("sacct", str(error)) from error


def _job_id(text: str) -> str:
    if not (0 < len(text) <= 20 and text.isascii() and text.isdigit()):
        raise malformed("a job id must be digits")
    return text


def _unreadable(tool: str, said: str) -> VerbFailed:
    return VerbFailed("slurm.unreadable", f"{tool} said something unexpected.", "See the detail.", said[:1000])
