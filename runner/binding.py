"""What a compute node's Kerberos token speaks for: one request, about one Slurm job, and no other."""

from __future__ import annotations

import hashlib
import json


def node_binding(purpose: str, slurm_job_id: int, uid: int, node: str) -> bytes:
    """Return the channel bindings' application data (RFC 2744, section 3.11) of a node's request.

    Node and broker make it each for themselves from what is asked, so that nobody between them can spend the node's
    token on another job, another uid, or another purpose (``tickets`` or ``released``).
    """
    words = json.dumps(["ci-bridge-node/1", purpose, slurm_job_id, uid, node], separators=(",", ":"))
    return hashlib.sha256(words.encode()).digest()
