"""Writes a stage's steps down: the step and its audit record, in one transaction, before the next step is taken."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from bridge import lifecycle
from bridge.audit.ledger import Ledger
from bridge.audit.record import Actor, Phase, Record, RecordType
from bridge.model import Run, Stage, StageKind, StageState
from bridge.records import basis_of, target_of
from bridge.standing import RegisterCache, require_standing
from runner.wire import Outcome


@dataclass(frozen=True, slots=True)
class StageBook:
    """The record of one stage of one run."""

    ledger: Ledger
    run: Run
    stage: Stage
    reference: str

    def intend(self, script: bytes, register: RegisterCache) -> Stage | None:
        """Record that the stage is about to start. Returns the stage as it is where it was recorded before.

        Raises Conflict ``run.ended``, PolicyRefused as ``standing`` does, and Conflict ``stage.invocation`` where the
        invocation is another stage's.
        """
        with self.ledger.begin() as tx:
            lifecycle.require_live(tx.session(self.run.run_id).state)
            require_standing(register.current(tx), self.run.grant)
            known = tx.add_stage(self.stage)
            if known is not self.stage:
                return known
            tx.append(self._record(Phase.INTENT, request_sha256=hashlib.sha256(script).hexdigest()))
            return None

    def advance(self, state: StageState, *, slurm_job_id: int | None = None, node: str | None = None) -> Stage:
        """Record a step on the way; raises Conflict where the stage is not where the step starts."""
        with self.ledger.begin() as tx:
            stage = tx.advance_stage(
                self.run.run_id,
                self.stage.invocation,
                lifecycle.sources(self.stage.kind, state),
                state,
                slurm_job_id=slurm_job_id,
                node=node,
            )
            tx.append(self._record(Phase.EVENT, state=state, slurm_job_id=stage.slurm_job_id, node=node))
            return stage

    def finish(
        self, state: StageState, outcome: Outcome, *, exit_code: int | None = None, code: str | None = None
    ) -> None:
        """Record how the stage ended. A stage that is over already stays as it is."""
        with self.ledger.begin() as tx:
            now = tx.stage(self.run.run_id, self.stage.invocation)
            if now.state in lifecycle.FINAL:
                return
            lifecycle.advance(self.stage.kind, now.state, state)
            tx.advance_stage(self.run.run_id, self.stage.invocation, {now.state}, state, exit_code=exit_code)
            phase = Phase.OK if outcome in (Outcome.OK, Outcome.SCRIPT_FAILED, Outcome.CANCELLED) else Phase.FAILED
            tx.append(
                self._record(
                    phase, state=state, slurm_job_id=now.slurm_job_id, exit_code=exit_code, code=code, node=now.node
                )
            )

    @property
    def on_slurm(self) -> bool:
        """Whether the stage is a Slurm job."""
        return self.stage.kind is StageKind.SLURM

    def _record(
        self,
        phase: Phase,
        *,
        state: StageState = StageState.INTENDED,
        slurm_job_id: int | None = None,
        exit_code: int | None = None,
        code: str | None = None,
        node: str | None = None,
        request_sha256: str | None = None,
    ) -> Record:
        return Record(
            type=RecordType.STAGE,
            phase=phase,
            reference=self.reference,
            run_id=self.run.run_id,
            invocation=self.stage.invocation,
            stage=self.stage.name,
            actor=Actor.of(self.run.grant.identity),
            target=target_of(self.run.grant, node),
            basis=basis_of(self.run.grant),
            slurm_job_id=slurm_job_id,
            exit_code=exit_code,
            request_sha256=request_sha256,
            code=code,
            detail={"state": state.value, "kind": self.stage.kind.value},
        )
