"""Tickets for compute nodes: the broker says that the caller is a node, Slurm says that the job runs there now."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Final

from bridge.broker.client import BrokerClient
from bridge.cluster.hostlist import expand
from bridge.cluster.slurm import Slurm
from bridge.errors import BridgeError, PolicyRefused
from bridge.model import RunId
from bridge.runs.live import Runs

MAX_NODES: Final = 100_000


@dataclass(frozen=True, slots=True)
class NodeJob:
    """A Slurm job as its prolog knows it."""

    slurm_job_id: int
    uid: int
    node: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a node gets."""

    ccache: bytes = field(repr=False)
    cache: str
    """Where the mount helper looks for it: ``FILE:/tmp/krb5cc_20001``."""
    reply_token: str = field(repr=False)


class NodeDesk:
    """Serves prologs and epilogs."""

    def __init__(self, runs: Runs, broker: BrokerClient) -> None:
        self._runs = runs
        self._broker = broker

    def tickets(self, job: NodeJob, token: str) -> Delivery:
        """Return the bundle of a job that runs on the calling node at this moment; raises BridgeError."""
        claim, _ = self._broker.ask(
            "node_claim", token=token, slurm_job_id=job.slurm_job_id, uid=job.uid, node=job.node
        )
        try:
            self._require_running(RunId(claim["run_id"]), job)
        except BridgeError:
            self._drop(claim["claim_id"])
            raise
        header, ccache = self._broker.ask("node_tickets", claim_id=claim["claim_id"])
        return Delivery(ccache, str(header["cache"]), str(claim["reply"]))

    def _drop(self, claim_id: str) -> None:
        """Have the broker not count a claim any more for which no bundle will be asked; it ends by itself otherwise."""
        with contextlib.suppress(BridgeError):
            self._broker.ask("node_dropped", claim_id=claim_id)

    def released(self, job: NodeJob, token: str) -> str:
        """Have it recorded that the node removed the job's tickets; return our Negotiate reply."""
        header, _ = self._broker.ask(
            "node_released", token=token, slurm_job_id=job.slurm_job_id, uid=job.uid, node=job.node
        )
        return str(header["reply"])

    def _require_running(self, run_id: RunId, job: NodeJob) -> None:
        node = self._runs.node_of(run_id).lease.node
        state = Slurm(node).states([job.slurm_job_id]).get(job.slurm_job_id)
        names = expand(state.nodes, MAX_NODES) if state is not None else frozenset()
        if state is None or not state.started or job.node.partition(".")[0] not in names:
            raise PolicyRefused(
                "node.not_running_here",
                "Slurm does not say that this job runs on this node now.",
                "If it does, look at slurmctld's log: prolog and controller disagree.",
                slurm_job_id=job.slurm_job_id,
                node=job.node,
            )
