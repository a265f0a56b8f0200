"""What the end of a Slurm job means for the GitLab job: whose fault it was, and what to do about it."""

from __future__ import annotations

from bridge.cluster.slurm import BaseState, JobState
from bridge.errors import BridgeError, Outage, RequestRefused

SIGNAL_BASE = 128
"""What a shell reports for a command that a signal ended: 128 + the signal's number."""

NO_TICKETS_SIGNAL = 63
"""With this the job's wrapper ends where the prolog got no tickets (``deploy/bin/ci-bridge-job``)."""


def exit_code(job: JobState) -> int:
    """Return what the script ended with, a signal as a shell reports it; 1 where Slurm does not say."""
    if job.signal:
        return SIGNAL_BASE + job.signal
    return 1 if job.exit_code is None else job.exit_code


def trouble(job: JobState) -> BridgeError | None:
    """Return the error for an end that was not the script's own doing; None where the exit code says all."""
    name = f"Slurm job {job.job_id}"
    if job.signal == NO_TICKETS_SIGNAL:
        return Outage(
            "node.no_tickets",
            f"{name} did not begin: its node could not get the job's tickets.",
            "Retry the job; operators: the node's log of ci-bridge-node says why.",
        )
    match job.base:
        case BaseState.TIMEOUT | BaseState.DEADLINE:
            return RequestRefused(
                "slurm.timeout", f"{name} reached its time limit.", "Ask for more with --time in SCHEDULER_PARAMETERS."
            )
        case BaseState.OUT_OF_MEMORY:
            return RequestRefused(
                "slurm.out_of_memory", f"{name} used more memory than it has.", "Ask for more with --mem."
            )
        case BaseState.CANCELLED:
            return RequestRefused(
                "slurm.cancelled",
                f"{name} was cancelled on the cluster.",
                "Ask the cluster's operators if it was not you.",
            )
        case BaseState.NODE_FAIL | BaseState.BOOT_FAIL | BaseState.PREEMPTED:
            return Outage(
                "slurm.node_failed", f"{name} lost its node ({job.base}).", "Retry the job: it was not the script."
            )
        case _:
            return None
