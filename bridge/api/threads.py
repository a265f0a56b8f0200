"""Threads of web in which callers wait: each kind of caller has its own, so that none waits for another kind's (T38).

A route that waits is ``async def`` and waits in ``anyio.to_thread`` with one of these limiters. What has none runs in
anyio's own 40 threads, which are those of the calls of admitted runs alone: they ask the database and nobody else.

At the broker, too, there must be room for every kind. Each waiting caller is one of its 128 connections
(``broker.server.MAX_CONNECTIONS``), and may be one of its 64 calls to the KDC (``kerberos.deadline.DEFAULT_SLOTS``), of
which one to a KDC that says nothing takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from anyio import CapacityLimiter
from fastapi import Depends, Request

NODES_AT_ONCE: Final = 32
"""Prologs and epilogs; when a large job starts, all of its nodes come at once.

Half of the broker's calls to the KDC, so that nodes never have all of them, and a quarter of its connections; more than
the share of one node (``nodeclaims.AT_ONCE``). More would be no quicker: a claim whose KDC answers takes milliseconds,
and the broker makes them on few processors.
"""

ADMISSIONS_AT_ONCE: Final = 32
"""New jobs, which wait for GitLab and the KDC; the other half. Strangers may knock here, with evidence that is none."""

SLOW_CALLS: Final = 64
"""Cancels and finishes: they wait for the cluster, and ask the broker only where a connection to it was lost."""

PROBES_AT_ONCE: Final = 4
"""Whether web is ready: milliseconds, and while the broker does not answer, nobody is told sooner by more of them."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The limiters of one application."""

    nodes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NODES_AT_ONCE))
    admissions: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(ADMISSIONS_AT_ONCE))
    slow: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(SLOW_CALLS))
    probes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PROBES_AT_ONCE))


async def threads(request: Request) -> Threads:
    """Return the limiters that the composition root made."""
    found: Threads = request.app.state.threads
    return found


Waiting = Annotated[Threads, Depends(threads)]
"""Where a route's callers may wait."""
