"""The ledger over the database: transactions that hold the business change and its audit record, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from bridge.access import ApiToken, SessionEpoch
from bridge.audit.ledger import Claim, Opened, Opening, SealedGrant, Session
from bridge.audit.log import Entry, Head, Writer
from bridge.audit.record import Record
from bridge.db import refusals
from bridge.db.access import AccessChanges, AccessViews
from bridge.db.auditlog import AuditAppends, AuditViews
from bridge.db.decisions import DecisionChanges, DecisionViews
from bridge.db.engine import LOCK_SECONDS, WRITES
from bridge.db.idempotency import IdempotencyChanges
from bridge.db.kills import KillChanges, KillViews
from bridge.db.listing import CancelChanges, ListViews
from bridge.db.policies import PolicyChanges, PolicyViews
from bridge.db.register import RegisterChanges, RegisterViews
from bridge.db.runs import RunChanges, RunViews
from bridge.db.stages import StageChanges, StageViews
from bridge.decisions import KeptDecision
from bridge.listing import BundleRow, Cancel, EntryFilter, RunFilter, RunnerRow, RunRow
from bridge.model import KillSwitch, Run, RunId, RunState, Stage, StageState
from bridge.proposals import Activation, Proposal
from bridge.register import Consent, Edit, Lifting, Link, Register, RegisterHead

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The moment, aware, in UTC."""
    return datetime.now(tz=UTC)


class SqlLedger:
    """Implements ``audit.ledger.Ledger``; safe to use from many threads and many processes."""

    def __init__(self, engine: Engine, writer: Writer, clock: Clock = utc_now) -> None:
        """``engine`` comes from ``open_database`` and is migrated; ``writer`` names this process in the log."""
        self._reading = engine
        if engine.dialect.name == "postgresql":
            self._reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._writing = engine.execution_options(**{WRITES: True})
        self._writer = writer
        self._clock = clock
        # SQLite's busy handler sleeps and has no queue: threads of one process would starve each other.
        self._queue = threading.Lock()

    @contextmanager
    def begin(self) -> Iterator[SqlTx]:
        """A writing transaction, see ``Ledger.begin``."""
        if not self._queue.acquire(timeout=LOCK_SECONDS):
            raise refusals.busy()
        try:
            with self._writing.begin() as connection:
                tx = SqlTx(connection, self._writer, self._clock())
                yield tx
                tx.flush()
            tx.committed()
        except SQLAlchemyError as error:
            raise refusals.of_database(error) from error
        finally:
            self._queue.release()

    @contextmanager
    def read(self) -> Iterator[SqlView]:
        """A reading transaction, see ``Ledger.read``."""
        try:
            with self._reading.begin() as connection:
                yield SqlView(connection)
        except SQLAlchemyError as error:
            raise refusals.of_database(error) from error


class SqlView:
    """Implements ``audit.ledger.View`` on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._run_views = RunViews(connection)
        self._stage_views = StageViews(connection)
        self._kill_views = KillViews(connection)
        self._register_views = RegisterViews(connection)
        self._policy_views = PolicyViews(connection)
        self._access_views = AccessViews(connection)
        self._audit_views = AuditViews(connection)
        self._decision_views = DecisionViews(connection)
        self._list_views = ListViews(connection)

    def run(self, run_id: RunId) -> Run:
        """See ``View.run``."""
        return self._run_views.run(run_id)

    def session(self, run_id: RunId) -> Session:
        """See ``View.session``."""
        return self._run_views.session(run_id)

    def sealed_grant(self, run_id: RunId) -> SealedGrant:
        """See ``View.sealed_grant``."""
        return self._run_views.sealed_grant(run_id)

    def live_runs(self) -> Sequence[Run]:
        """See ``View.live_runs``."""
        return self._run_views.live_runs()

    def stage(self, run_id: RunId, invocation: str) -> Stage:
        """See ``View.stage``."""
        return self._stage_views.stage(run_id, invocation)

    def stages(self, run_id: RunId) -> Sequence[Stage]:
        """See ``View.stages``."""
        return self._stage_views.stages(run_id)

    def run_by_slurm_job(self, cluster: str, slurm_job_id: int) -> tuple[Run, Stage]:
        """See ``View.run_by_slurm_job``."""
        return self._stage_views.run_by_slurm_job(cluster, slurm_job_id)

    def kill_switches(self, *, active: bool = True) -> Sequence[KillSwitch]:
        """See ``View.kill_switches``."""
        return self._kill_views.kill_switches(active=active)

    def register_head(self) -> RegisterHead:
        """See ``View.register_head``."""
        return self._register_views.head()

    def register(self) -> Register:
        """See ``View.register``."""
        return self._register_views.register()

    def bundle_files(self, content_hash: str) -> Mapping[str, str]:
        """See ``View.bundle_files``."""
        return self._policy_views.bundle_files(content_hash)

    def api_token_uses(self) -> Mapping[str, datetime]:
        """See ``View.api_token_uses``."""
        return self._access_views.api_token_uses()

    def decision(self, reference: str) -> KeptDecision | None:
        """See ``View.decision``."""
        return self._decision_views.decision(reference)

    def decisions(self, since: datetime, most: int) -> Sequence[KeptDecision]:
        """See ``View.decisions``."""
        return self._decision_views.decisions(since, most)

    def head(self) -> Head:
        """See ``View.head``."""
        return self._audit_views.head()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """See ``View.entries``."""
        return self._audit_views.entries(after)

    def timeline(
        self, *, run_id: RunId | None = None, job_id: int | None = None, reference: str | None = None
    ) -> Sequence[Entry]:
        """See ``View.timeline``."""
        return self._audit_views.timeline(run_id=run_id, job_id=job_id, reference=reference)

    def list_runs(self, wanted: RunFilter, before: tuple[datetime, RunId] | None, limit: int) -> Sequence[RunRow]:
        """See ``View.list_runs``."""
        return self._list_views.list_runs(wanted, before, limit)

    def list_runners(self, after: tuple[str, int] | None, limit: int) -> Sequence[RunnerRow]:
        """See ``View.list_runners``."""
        return self._list_views.list_runners(after, limit)

    def list_bundles(self, before: tuple[datetime, str] | None, limit: int) -> Sequence[BundleRow]:
        """See ``View.list_bundles``."""
        return self._list_views.list_bundles(before, limit)

    def find_entries(self, wanted: EntryFilter, first: int, last: int, limit: int, *, newest: bool) -> Sequence[Entry]:
        """See ``View.find_entries``."""
        return self._list_views.find_entries(wanted, first, last, limit, newest=newest)

    def first_seq_since(self, moment: datetime) -> int:
        """See ``View.first_seq_since``."""
        return self._list_views.first_seq_since(moment)

    def cancels(self, run_id: RunId | None = None) -> Sequence[Cancel]:
        """See ``View.cancels``."""
        return self._list_views.cancels(run_id)


class SqlTx(SqlView):
    """Implements ``audit.ledger.Tx`` on one connection."""

    def __init__(self, connection: Connection, writer: Writer, now: datetime) -> None:
        super().__init__(connection)
        self._appends = AuditAppends(connection, writer, now)
        self._run_changes = RunChanges(connection, now)
        self._stage_changes = StageChanges(connection, now)
        self._kill_changes = KillChanges(connection, now)
        self._decision_changes = DecisionChanges(connection)
        self._register_changes = RegisterChanges(connection)
        self._policy_changes = PolicyChanges(connection)
        self._access_changes = AccessChanges(connection)
        self._cancel_changes = CancelChanges(connection)
        self._idempotency = IdempotencyChanges(connection, now)
        self._now = now
        self._edits: list[Edit] = []
        self._sealed = 0
        self._after_commit: list[Callable[[], None]] = []
        self._appends.lock()

    def append(self, record: Record) -> int:
        """See ``Tx.append``."""
        return self._appends.append(record)

    def flush(self) -> None:
        """Write what is written once for a transaction; the ledger calls it before the commit.

        Raises Defect ``register.unsealed`` where a row of the register would be stored without a seal.
        """
        if self._sealed != len(self._edits):
            raise refusals.register_unsealed()
        self._appends.flush()

    def open_run(self, opening: Opening) -> Opened:
        """See ``Tx.open_run``."""
        return self._run_changes.open_run(opening)

    def update_run_state(self, run_id: RunId, from_states: Collection[RunState], to_state: RunState) -> Run:
        """See ``Tx.update_run_state``."""
        return self._run_changes.update_run_state(run_id, from_states, to_state)

    def set_session(self, run_id: RunId, session_hash: bytes) -> None:
        """See ``Tx.set_session``."""
        self._run_changes.set_session(run_id, session_hash)

    def add_stage(self, stage: Stage) -> Stage:
        """See ``Tx.add_stage``."""
        return self._stage_changes.add_stage(stage)

    def advance_stage(
        self, run_id: RunId, invocation: str, from_states: Collection[StageState], to_state: StageState, **fields: Any
    ) -> Stage:
        """See ``Tx.advance_stage``."""
        return self._stage_changes.advance_stage(run_id, invocation, from_states, to_state, **fields)

    def kill(self, switch: KillSwitch) -> KillSwitch:
        """See ``Tx.kill``."""
        in_force = self._kill_changes.kill(switch)
        if in_force is switch:
            self._edits.append(switch)
        return in_force

    def lift(self, switch_id: str, actor: str) -> KillSwitch:
        """See ``Tx.lift``."""
        lifted = self._kill_changes.lift(switch_id, actor)
        self._edits.append(Lifting(switch_id, self._now, actor))
        return lifted

    def put_link(self, link: Link) -> None:
        """See ``Tx.put_link``."""
        self._edits.append(self._register_changes.put_link(link))

    def put_consent(self, consent: Consent) -> None:
        """See ``Tx.put_consent``."""
        self._edits.append(self._register_changes.put_consent(consent))

    def put_proposal(self, proposal: Proposal) -> None:
        """See ``Tx.put_proposal``."""
        self._edits.append(self._policy_changes.put_proposal(proposal))

    def put_activation(self, activation: Activation) -> None:
        """See ``Tx.put_activation``."""
        self._edits.append(self._policy_changes.put_activation(activation))

    def keep_bundle(self, content_hash: str, files: Mapping[str, str], by: str, now: datetime) -> None:
        """See ``Tx.keep_bundle``."""
        self._policy_changes.keep_bundle(content_hash, files, by, now)

    def put_api_token(self, token: ApiToken) -> None:
        """See ``Tx.put_api_token``."""
        self._edits.append(self._access_changes.put_api_token(token))

    def put_session_epoch(self, epoch: SessionEpoch) -> None:
        """See ``Tx.put_session_epoch``."""
        self._edits.append(self._access_changes.put_session_epoch(epoch))

    def note_api_token_use(self, token_id: str, at: datetime) -> None:
        """See ``Tx.note_api_token_use``."""
        self._access_changes.note_api_token_use(token_id, at)

    def cancel_run(self, cancel: Cancel) -> Cancel:
        """See ``Tx.cancel_run``."""
        return self._cancel_changes.cancel_run(cancel)

    def claim_key(self, principal: str, key: str, request_sha256: str) -> Claim | bytes:
        """See ``Tx.claim_key``."""
        return self._idempotency.claim(principal, key, request_sha256)

    def settle_key(self, principal: str, key: str, answer: bytes | None) -> None:
        """See ``Tx.settle_key``."""
        self._idempotency.settle(principal, key, answer)

    def set_register_head(self, head: RegisterHead) -> None:
        """See ``Tx.set_register_head``."""
        self._register_changes.set_head(head)
        self._sealed = len(self._edits)

    def edits(self) -> Sequence[Edit]:
        """See ``Tx.edits``."""
        return tuple(self._edits)

    def after_commit(self, do: Callable[[], None]) -> None:
        """See ``Tx.after_commit``."""
        self._after_commit.append(do)

    def committed(self) -> None:
        """Do what was to be done after the commit; the ledger calls it."""
        for do in self._after_commit:
            do()

    def keep_decision(self, decision: KeptDecision) -> None:
        """See ``Tx.keep_decision``."""
        self._decision_changes.keep_decision(decision)

    def forget_tokens(self) -> int:
        """See ``Tx.forget_tokens``."""
        return self._run_changes.forget_tokens()
