"""The end of a run on the cluster: no job of it alive, no ticket and no private file left."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bridge.audit.ledger import Ledger
from bridge.cluster.node import LoginNode
from bridge.cluster.slurm import Slurm
from bridge.errors import Outage
from bridge.lifecycle import FINAL
from bridge.model import Run, StageKind, StageState
from bridge.references import new_reference
from bridge.runs.book import StageBook
from bridge.runs.places import login_ccache
from bridge.runs.task import StageTask
from runner.wire import Outcome

WAIT_SECONDS: Final = 100.0
"""For what was cancelled to end: Slurm's KillWait, an epilog, and some."""

_CONFIRMED: Final = frozenset({StageState.ENDED, StageState.CANCELLED})
"""Slurm has said that the job is over; of a LOST one nobody knows."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What was done for a run's end."""

    cancelled: list[int]
    """Ids of the Slurm jobs that had to be cancelled."""
    shared_cache: bool
    """Whether another live run needed the account's tickets on the login node, so that they stayed."""
    login_left: bool
    """Whether the person had logged in where the tickets go, so that nothing there was removed."""


def finish_on_login_node(ledger: Ledger, run: Run, node: LoginNode, tasks: Iterable[StageTask]) -> Finished:
    """Wait for the run's tasks, cancel every job of its that Slurm still has, clear its places, and settle its stages.

    Raises Outage where the end of one can't be confirmed.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    for task in tasks:
        if not task.wait(max(0.0, deadline - time.monotonic())):
            raise _unconfirmed()
    cancelled = _cancel_leftovers(ledger, run, Slurm(node), deadline)
    cluster = run.grant.cluster
    _settle(ledger, run, cancelled)
    busy = _account_is_busy(ledger, run)
    left = node.destroy(run.run_id, cluster.builds_root, None if busy else login_ccache(run.grant))
    return Finished(cancelled, busy, left)


def drop_last_cache(ledger: Ledger, run: Run, node: LoginNode, finished: Finished) -> None:
    """Remove the tickets that stayed for another run, if that one has ended by now: the later of two takes them."""
    if finished.shared_cache and not _account_is_busy(ledger, run):
        with suppress(Outage):
            node.drop_tickets(login_ccache(run.grant))


def _settle(ledger: Ledger, run: Run, cancelled: list[int]) -> None:
    """Put an end on record for each stage whose own process did not live to do it."""
    with ledger.read() as view:
        unsettled = [stage for stage in view.stages(run.run_id) if stage.state not in FINAL]
    for stage in unsettled:
        state = StageState.CANCELLED if stage.slurm_job_id in cancelled else StageState.LOST
        outcome = Outcome.CANCELLED if state is StageState.CANCELLED else Outcome.OUTAGE
        StageBook(ledger, run, stage, new_reference()).finish(state, outcome, code="run.ended")


def _cancel_leftovers(ledger: Ledger, run: Run, slurm: Slurm, deadline: float) -> list[int]:
    """Look for jobs by name: a crash may have left one that no task of this process knows."""
    with ledger.read() as view:
        stages = [stage for stage in view.stages(run.run_id) if stage.kind is StageKind.SLURM]
    cancelled: list[int] = []
    for stage in stages:
        if stage.state in _CONFIRMED:
            continue
        while live := [job for job in slurm.find(stage.slurm_name) if not job.ended]:
            for job in live:
                slurm.cancel(job.job_id)
                cancelled.append(job.job_id)
            if time.monotonic() > deadline:
                raise _unconfirmed()
            time.sleep(0.2)
    return sorted(set(cancelled))


def _account_is_busy(ledger: Ledger, run: Run) -> bool:
    """Whether another live run shares the account's ticket cache on the login node."""
    mine = (run.grant.cluster.name, run.grant.account.name)
    now = datetime.now(UTC)
    with ledger.read() as view:
        others = [other for other in view.live_runs() if other.run_id != run.run_id and other.not_after > now]
    return any((other.grant.cluster.name, other.grant.account.name) == mine for other in others)


def _unconfirmed() -> Outage:
    return Outage(
        "run.end_unconfirmed",
        "Not all of the run is known to have ended.",
        "It is asked for again at the next cleanup; tell the cluster's operators if jobs named ci-... stay.",
    )
