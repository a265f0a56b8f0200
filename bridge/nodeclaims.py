"""What compute nodes have under way: each has shown who it is, and waits for its bundle while Slurm is asked."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bridge.errors import TokenRefused, TooMany
from bridge.model import RunId

CLAIM_LIFE: Final = timedelta(seconds=60)
"""Between a node's proof of who it is and its bundle lies one look into Slurm's queue."""

AT_ONCE: Final = 24
"""Of the 32 threads that web has for nodes (``api.threads``), so that one node leaves some to all others."""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A node has shown that it is itself, and that the Slurm job is a run's of ours."""

    claim_id: str
    run_id: RunId
    slurm_job_id: int
    stage: str
    invocation: str
    node: str
    reply: str
    expires: datetime


class ClaimBook:
    """Claims until their bundle is handed over, in the broker's memory only. Safe in threads."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        """Take how many claims a node may have open: each holds a thread of web, and asks Slurm and the KDC."""
        self._at_once = at_once
        self._lock = threading.Lock()
        self._open: dict[str, NodeClaim] = {}
        self._taken: set[str] = set()

    def add(self, claim: NodeClaim) -> NodeClaim:
        """Keep a claim until it is done or too old; raises TooMany ``node.too_many``."""
        with self._lock:
            self._forget_before(claim.expires - CLAIM_LIFE)
            if sum(one.node == claim.node for one in self._open.values()) >= self._at_once:
                raise too_many(claim.node)
            self._open[claim.claim_id] = claim
        return claim

    def take(self, claim_id: str, now: datetime) -> NodeClaim:
        """Return a claim, once; it is open until ``done``. Raises TokenRefused ``node.claim_unknown``."""
        with self._lock:
            self._forget_before(now)
            claim = self._open.get(claim_id)
            if claim is None or claim_id in self._taken:
                raise TokenRefused(
                    "node.claim_unknown", "There is no such claim, or no more.", "Ask again as the node."
                )
            self._taken.add(claim_id)
        return claim

    def done(self, claim_id: str) -> None:
        """Forget a claim: its bundle was handed over, or nobody will ask for it."""
        with self._lock:
            self._open.pop(claim_id, None)
            self._taken.discard(claim_id)

    def _forget_before(self, now: datetime) -> None:
        self._open = {key: claim for key, claim in self._open.items() if claim.expires > now}
        self._taken &= self._open.keys()


def too_many(caller: str) -> TooMany:
    """The answer to a node, or whoever has its keytab, that asks more than any node has reason to."""
    return TooMany(
        "node.too_many",
        "This node asks for more than its share.",
        "The node asks again by itself; if it lasts, find out who uses its keytab.",
        principal=caller,
    )
