"""Stages in their table; every change is a compare-and-set on the state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from bridge.db import refusals
from bridge.db.runs import RunViews
from bridge.db.schema import runs, stages
from bridge.model import Run, RunId, Stage, StageKind, StageState


class StageViews:
    """Reads stages on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def stage(self, run_id: RunId, invocation: str) -> Stage:
        """One stage; raises NotFound ``stage.unknown``."""
        found = self.find(run_id, invocation)
        if found is None:
            raise refusals.stage_unknown(run_id, invocation)
        return found

    def find(self, run_id: RunId, invocation: str) -> Stage | None:
        """One stage, or None."""
        query = select(stages).where(stages.c.run_id == run_id, stages.c.invocation == invocation)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else _stage_of(row)

    def stages(self, run_id: RunId) -> Sequence[Stage]:
        """The run's stages, oldest first."""
        query = select(stages).where(stages.c.run_id == run_id).order_by(stages.c.position)
        return [_stage_of(row) for row in self._connection.execute(query)]

    def run_by_slurm_job(self, cluster: str, slurm_job_id: int) -> tuple[Run, Stage]:
        """See ``View.run_by_slurm_job``: Slurm's ids begin anew when its state is lost, hence the newest."""
        query = (
            select(stages)
            .where(stages.c.cluster == cluster, stages.c.slurm_job_id == slurm_job_id)
            .order_by(stages.c.created_at.desc())
            .limit(1)
        )
        row = self._connection.execute(query).one_or_none()
        if row is None:
            raise refusals.not_ours(cluster, slurm_job_id)
        stage = _stage_of(row)
        return RunViews(self._connection).run(stage.run_id), stage


class StageChanges:
    """Changes stages on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._views = StageViews(connection)

    def add_stage(self, stage: Stage) -> Stage:
        """See ``Tx.add_stage``."""
        found = self._views.find(stage.run_id, stage.invocation)
        if found is not None:
            if (found.name, found.kind) != (stage.name, stage.kind):
                raise refusals.invocation_taken(stage.run_id, stage.invocation)
            return found
        cluster = self._connection.execute(
            select(runs.c.cluster).where(runs.c.run_id == stage.run_id)
        ).scalar_one_or_none()
        if cluster is None:
            raise refusals.run_unknown(stage.run_id)
        self._connection.execute(insert(stages), {**self._values(stage), "cluster": cluster})
        return stage

    def advance_stage(
        self,
        run_id: RunId,
        invocation: str,
        from_states: Collection[StageState],
        to_state: StageState,
        *,
        slurm_job_id: int | None = None,
        exit_code: int | None = None,
        node: str | None = None,
    ) -> Stage:
        """See ``Tx.advance_stage``."""
        fields = {"slurm_job_id": slurm_job_id, "exit_code": exit_code, "node": node}
        changed = self._connection.execute(
            update(stages)
            .where(stages.c.run_id == run_id, stages.c.invocation == invocation, stages.c.state.in_(from_states))
            .values(
                state=to_state,
                changed_at=self._now,
                **{name: value for name, value in fields.items() if value is not None},
            )
        )
        stage = self._views.stage(run_id, invocation)
        if changed.rowcount != 1:
            raise refusals.stage_state(run_id, invocation, stage.state, from_states)
        return stage

    def _values(self, stage: Stage) -> dict[str, Any]:
        position = self._connection.execute(
            select(func.count()).select_from(stages).where(stages.c.run_id == stage.run_id)
        ).scalar_one()
        return {
            "run_id": stage.run_id,
            "invocation": stage.invocation,
            "position": position,
            "name": stage.name,
            "kind": stage.kind,
            "state": stage.state,
            "slurm_job_id": stage.slurm_job_id,
            "slurm_name": stage.slurm_name,
            "exit_code": stage.exit_code,
            "node": stage.node,
            "created_at": self._now,
            "changed_at": self._now,
        }


def _stage_of(row: Any) -> Stage:
    return Stage(
        run_id=RunId(row.run_id),
        invocation=row.invocation,
        name=row.name,
        kind=StageKind(row.kind),
        state=StageState(row.state),
        slurm_job_id=row.slurm_job_id,
        slurm_name=row.slurm_name,
        exit_code=row.exit_code,
        node=row.node,
    )
