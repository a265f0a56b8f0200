"""The states of runs and stages, and the only ways from one to the next. Pure: no I/O.

A stage is advanced by compare-and-set in the database, in the transaction that writes its audit record; this page says
which steps exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bridge.errors import Conflict, Defect
from bridge.model import RunState, StageKind, StageState

S = StageState

SLURM_TRANSITIONS: Final[Mapping[StageState, frozenset[StageState]]] = MappingProxyType(
    {
        S.INTENDED: frozenset({S.HELD, S.CANCELLED, S.LOST}),
        S.HELD: frozenset({S.RELEASED, S.CANCELLED, S.LOST}),
        S.RELEASED: frozenset({S.PENDING, S.RUNNING, S.ENDED, S.CANCELLED, S.LOST}),
        S.PENDING: frozenset({S.RUNNING, S.ENDED, S.CANCELLED, S.LOST}),
        S.RUNNING: frozenset({S.PENDING, S.ENDED, S.CANCELLED, S.LOST}),
        S.ENDED: frozenset(),
        S.CANCELLED: frozenset(),
        S.LOST: frozenset(),
    }
)
"""RUNNING -> PENDING is a requeue by the site; LOST is a job that Slurm does not know, or a submission that failed."""

LOGIN_TRANSITIONS: Final[Mapping[StageState, frozenset[StageState]]] = MappingProxyType(
    {
        S.INTENDED: frozenset({S.RUNNING, S.CANCELLED, S.LOST}),
        S.RUNNING: frozenset({S.ENDED, S.CANCELLED, S.LOST}),
        S.ENDED: frozenset(),
        S.CANCELLED: frozenset(),
        S.LOST: frozenset(),
    }
)

RUN_TRANSITIONS: Final[Mapping[RunState, frozenset[RunState]]] = MappingProxyType(
    {
        RunState.ADMITTED: frozenset({RunState.PREPARED, RunState.ENDED, RunState.ADMITTED}),
        RunState.PREPARED: frozenset({RunState.PREPARED, RunState.ENDED, RunState.ADMITTED}),
        RunState.ENDED: frozenset({RunState.ADMITTED}),
    }
)
"""Back to ADMITTED is the runner's own retry of config and prepare; the ledger allows it before any user code ran."""

FINAL: Final = frozenset({S.ENDED, S.CANCELLED, S.LOST})
ON_SLURM: Final = frozenset({S.HELD, S.RELEASED, S.PENDING, S.RUNNING})


def transitions(kind: StageKind) -> Mapping[StageState, frozenset[StageState]]:
    """Return the table of steps for a kind of stage."""
    return SLURM_TRANSITIONS if kind is StageKind.SLURM else LOGIN_TRANSITIONS


def sources(kind: StageKind, target: StageState) -> frozenset[StageState]:
    """Return the states from which ``target`` can be reached in one step; what a compare-and-set compares with."""
    return frozenset(state for state, targets in transitions(kind).items() if target in targets)


def advance(kind: StageKind, current: StageState, target: StageState) -> StageState:
    """Return ``target`` if the step exists; raises Defect ``stage.transition``, which nothing should ever see."""
    if target not in transitions(kind)[current]:
        raise Defect(
            "stage.transition",
            "The bridge tried to take a stage to a state that it can't be in.",
            "Report the reference to the bridge's operators.",
            kind=kind.value,
            current=current.value,
            target=target.value,
        )
    return target


def require_live(state: RunState) -> None:
    """Pass where the run can still start stages; raises Conflict ``run.ended``."""
    if state is RunState.ENDED:
        raise Conflict(
            "run.ended",
            "This run has ended.",
            "Retry the job in GitLab: a new job gets a new run.",
        )
