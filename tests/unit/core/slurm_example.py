"""The Slurm stage of a run: how tests begin it, bring it somewhere, and look it up."""

from __future__ import annotations

from bench import Broker, Reader, Web

from bridge.errors import Outage
from bridge.model import Stage, StageState
from bridge.runs.live_run import LiveRun
from tests.fakes import FakeCluster

ONE, TWO = "1" * 32, "2" * 32
SCRIPT = b"#!/bin/bash\nmake\n"


def slurm_away() -> Outage:
    """What the agent says when sbatch was not answered in time."""
    return Outage("slurm.unavailable", "Slurm does not answer.", "Retry.", detail="Unable to contact slurm controller")


def start(web: Web, live: LiveRun, invocation: str = ONE) -> Reader:
    """Begin the stage that holds user code."""
    return Reader(web.runs.start_stage(live, invocation, "build_script", SCRIPT))


def recorded(broker: Broker, live: LiveRun, invocation: str = ONE) -> Stage:
    """The stage as the ledger has it."""
    with broker.ledger.read() as view:
        return view.stage(live.run.run_id, invocation)


def states(broker: Broker) -> list[str]:
    """The states of the stage, as the audit log tells them."""
    return [one["detail"]["state"] for one in broker.records(type="stage")]


ENDINGS = [
    ("COMPLETED", 0, None, "ok", 0, None),
    ("FAILED", 3, None, "script_failed", 3, None),
    ("FAILED", None, 9, "script_failed", 137, None),
    ("TIMEOUT", 0, 15, "refused", None, "slurm.timeout"),
    ("DEADLINE", 0, None, "refused", None, "slurm.timeout"),
    ("OUT_OF_MEMORY", 0, 125, "refused", None, "slurm.out_of_memory"),
    ("CANCELLED by 0", None, 15, "refused", None, "slurm.cancelled"),
    ("NODE_FAIL", 0, None, "outage", None, "slurm.node_failed"),
    ("BOOT_FAIL", 0, None, "outage", None, "slurm.node_failed"),
    ("PREEMPTED", 0, 15, "outage", None, "slurm.node_failed"),
]


def held_job(broker: Broker, cluster: FakeCluster, live: LiveRun, reader: Reader) -> None:
    """Cancel comes while the job is submitted, and before it is released."""


def pending_job(broker: Broker, cluster: FakeCluster, live: LiveRun, reader: Reader) -> None:
    cluster.wait_job()
    reader.until(lambda: recorded(broker, live).state is StageState.PENDING)


def running_job(broker: Broker, cluster: FakeCluster, live: LiveRun, reader: Reader) -> None:
    cluster.run(cluster.wait_job().job_id)
    reader.until(lambda: recorded(broker, live).state is StageState.RUNNING)
