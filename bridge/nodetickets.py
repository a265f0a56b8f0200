"""What the audit log says of a job's tickets on one node: nobody else's word counts for what was delivered where."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable

from bridge.audit.log import Entry
from bridge.audit.record import Phase, RecordType


class OnNode(enum.Enum):
    """How the tickets of a job stand on a node."""

    NEVER = enum.auto()
    """None were delivered there."""
    THERE = enum.auto()
    REMOVED = enum.auto()
    """The node has said so since the last delivery."""


def on_node(entries: Iterable[Entry], slurm_job_id: int, host: str) -> OnNode:
    """Tell from the log's entries of a run, in order, how the tickets of its Slurm job stand on ``host``."""
    state, name = OnNode.NEVER, json.dumps(host).encode()
    for entry in entries:
        if name not in entry.leaf:
            continue
        record = json.loads(entry.leaf)
        if record["type"] != RecordType.TICKETS or record.get("slurm_job_id") != slurm_job_id:
            continue
        if record.get("target", {}).get("node") != host or record["detail"].get("use") != "node":
            continue
        if record["phase"] == Phase.OK:
            state = OnNode.THERE
        elif record["phase"] == Phase.EVENT and record["detail"].get("removed"):
            state = OnNode.REMOVED
    return state
