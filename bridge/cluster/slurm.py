"""Slurm as a run sees it: submit held, release, find by name, ask for state, cancel; over a LoginNode.

Slurm's own words become the bridge's types here, and its complaints the bridge's errors. Nothing is retried here:
sbatch has no idempotency key, so whoever submits looks the job up by its name first.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.cluster.agent import printable
from bridge.cluster.node import JobRow, LoginNode
from bridge.cluster.options import job_name_of
from bridge.errors import BridgeError, Defect, Outage, RequestRefused

_MAX_SENTENCE: Final = 240


class BaseState(enum.StrEnum):
    """The base states of a job (squeue(1), "JOB STATE CODES"), of which each job has exactly one."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"

    @property
    def is_live(self) -> bool:
        """True while the job may still run."""
        return self in _LIVE


_LIVE: Final = frozenset({BaseState.PENDING, BaseState.RUNNING, BaseState.SUSPENDED})

_FLAG_BASE: Final = {
    # squeue shows the flag in place of the base state; what the base state is then:
    "COMPLETING": BaseState.RUNNING,
    "CONFIGURING": BaseState.RUNNING,
    "STAGE_OUT": BaseState.RUNNING,
    "STOPPED": BaseState.RUNNING,
    "SIGNALING": BaseState.RUNNING,
    "RESIZING": BaseState.RUNNING,
    "POWER_UP_NODE": BaseState.RUNNING,
    "UPDATE_DB": BaseState.RUNNING,
    "REQUEUED": BaseState.PENDING,
    "REQUEUE_FED": BaseState.PENDING,
    "REQUEUE_HOLD": BaseState.PENDING,
    "RESV_DEL_HOLD": BaseState.PENDING,
    "SPECIAL_EXIT": BaseState.PENDING,
    "RECONFIG_FAIL": BaseState.FAILED,
    "LAUNCH_FAILED": BaseState.FAILED,
    "REVOKED": BaseState.CANCELLED,
}


_NOBODY_ANSWERS: Final = ("Unexpected message received", "Unable to contact slurm controller")
"""What 22.05's commands say when slurmctld does not answer; the first is scontrol's."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What Slurm knows of a job at one moment."""

    job_id: int
    base: BaseState
    flags: frozenset[str]
    """Flags beside the base state, e.g. COMPLETING; a job that is completing has not ended for us yet."""
    exit_code: int | None
    """The script's exit code, once it has ended by one."""
    signal: int | None
    """The signal that ended it, if one did."""
    nodes: tuple[str, ...]
    reason: str
    """Why it waits or what ended it, in Slurm's words; for people, never for decisions: kill -9 is JobLaunchFailure."""

    @property
    def ended(self) -> bool:
        """True once nothing of the job runs any more."""
        return not self.base.is_live and "COMPLETING" not in self.flags

    @property
    def started(self) -> bool:
        """True once it has nodes."""
        return self.base in (BaseState.RUNNING, BaseState.SUSPENDED)


class Slurm:
    """Slurm through one login node, as one person."""

    def __init__(self, node: LoginNode) -> None:
        self._node = node

    def submit_held(self, argv: Sequence[str]) -> int:
        """Submit a held job (argv from ``options.to_argv``) and give its id.

        Raises RequestRefused ``slurm.refused`` with Slurm's sentence, Outage ``slurm.unreachable``; after an Outage the
        job may exist: look for it by name.
        """
        try:
            return self._node.submit(argv).job_id
        except BridgeError as error:
            raise slurm_error(error) from error

    def release(self, job_id: int) -> None:
        """Let a held job go; raises as submit_held."""
        try:
            self._node.release(job_id)
        except BridgeError as error:
            raise slurm_error(error) from error

    def cancel(self, job_id: int) -> None:
        """Cancel a job in any state; one that is gone is fine. Raises as submit_held."""
        try:
            self._node.cancel(job_id)
        except BridgeError as error:
            raise slurm_error(error) from error

    def find(self, name: str) -> tuple[JobState, ...]:
        """Give every job of the person with exactly this name, oldest first; raises as submit_held."""
        try:
            rows = self._node.find(job_name_of(name))
        except ValueError:
            raise Defect("slurm.job_name", "A job's name is malformed.", "Report it to the operators.") from None
        except BridgeError as error:
            raise slurm_error(error) from error
        return tuple(sorted((job_state(row) for row in rows), key=lambda job: job.job_id))

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """Give the state of each job that Slurm knows; raises as submit_held."""
        try:
            rows = self._node.state(job_ids)
        except BridgeError as error:
            raise slurm_error(error) from error
        return {row.job_id: job_state(row) for row in rows}


def job_state(row: JobRow) -> JobState:
    """Read a row of squeue or sacct; raises Outage ``slurm.state_unknown`` for a state that is none of Slurm's.

    A state may be a base state, a flag that hides it, several joined by ``+`` or ``,``, or ``CANCELLED by 1000``.
    """
    words = re.split(r"[+,|\s]+", row.state.upper().split(" BY ")[0].strip())
    bases = [BaseState(word) for word in words if word in BaseState.__members__]
    flags = frozenset(word for word in words if word in _FLAG_BASE)
    if len(bases) > 1 or not (bases or flags):
        raise Outage(
            "slurm.state_unknown",
            "Slurm reports a job state that the bridge does not know.",
            "Give the reference to the operators of the bridge.",
            state=row.state,
            job_id=row.job_id,
        )
    base = bases[0] if bases else _FLAG_BASE[min(flags)]
    over = not base.is_live
    return JobState(
        job_id=row.job_id,
        base=base,
        flags=flags,
        exit_code=row.exit_code if over and not row.signal else None,
        signal=(row.signal or None) if over else None,
        nodes=_nodes(row.nodes),
        reason=printable(row.reason, _MAX_SENTENCE),
    )


def slurm_error(error: BridgeError) -> BridgeError:
    """Give the error to raise for one of the agent's: Slurm's refusals with its own sentence, its outages as such."""
    detail = str(error.context.get("detail", ""))
    if error.code == "slurm.refused" and not any(sign in detail for sign in _NOBODY_ANSWERS):
        return RequestRefused(
            "slurm.refused",
            f"Slurm refused the job: {_sentence(detail)}",
            "Correct SCHEDULER_PARAMETERS, or ask for the partition, QOS or account at the cluster's help desk.",
            detail=detail,
        )
    if error.code in ("slurm.refused", "slurm.unavailable", "slurm.not_started", "slurm.not_installed"):
        return Outage(
            "slurm.unreachable",
            "Slurm does not answer.",
            "Retry the job; if it lasts, tell the operators of the cluster.",
            detail=detail,
            agent_code=error.code,
        )
    return error


def _sentence(detail: str) -> str:
    """Give what Slurm says, less the names of its commands that stand before it."""
    text = printable(detail, _MAX_SENTENCE * 2)
    text = re.sub(r"\b(sbatch|scontrol|scancel|squeue|sacct): (error: |fatal: )?", "", text)
    text = text.removeprefix("Batch job submission failed: ")[:_MAX_SENTENCE]
    return text or "it gives no reason."


def _nodes(text: str) -> tuple[str, ...]:
    """Split a node list at the commas outside brackets; (null) and None assigned are none."""
    if text.startswith("(") or text.lower() in ("", "none assigned", "n/a"):
        return ()
    return tuple(re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*", text))
