"""The bridge's book: every change of a run and its audit record go into one transaction, or neither happens.

``with ledger.begin() as tx`` is the only way to change anything; when the block is left normally all of it is durable,
when it is left by an exception nothing of it was ever there. Writers wait for each other, so that nobody else changes
the book during a transaction. ``bridge.db`` implements this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bridge.audit.log import Entry, Head
from bridge.audit.record import Record
from bridge.model import Grant, KillSwitch, Run, RunId, RunState, Stage, StageState
from bridge.register import Consent, Edit, Link, Register, RegisterHead

Seal = Callable[[RunId, int, bytes], bytes]
"""Makes the seal for (run id, attempt, canonical JSON of the grant); called inside the transaction."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What opens a run, or the next attempt of one."""

    grant: Grant
    seal: Seal
    session_hash: bytes
    """SHA-256 of the session secret that the executor gets."""
    not_after: datetime
    job_token_hash: bytes
    """SHA-256 of CI_JOB_TOKEN: tells the runner's own retry from somebody who found the id_token."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The run that an opening led to."""

    run_id: RunId
    attempt: int
    """1 for a new run; counted up by the runner's retries of config."""


@dataclass(frozen=True, slots=True)
class SealedGrant:
    """A grant as it was sealed, for the broker to check before it acts on it again."""

    run_id: RunId
    attempt: int
    grant_json: bytes
    seal: bytes


@dataclass(frozen=True, slots=True)
class Session:
    """What is needed to let a bearer in, without the grant."""

    run_id: RunId
    state: RunState
    session_hash: bytes


class View(Protocol):
    """Reads the book as it is at one moment."""

    def run(self, run_id: RunId) -> Run:
        """The run; raises NotFound ``run.unknown``."""
        ...

    def session(self, run_id: RunId) -> Session:
        """The run's session; raises NotFound ``run.unknown``."""
        ...

    def sealed_grant(self, run_id: RunId) -> SealedGrant:
        """The run's grant and seal; raises NotFound ``run.unknown``."""
        ...

    def live_runs(self) -> Sequence[Run]:
        """Every run that has not ended, oldest first."""
        ...

    def stage(self, run_id: RunId, invocation: str) -> Stage:
        """One stage; raises NotFound ``stage.unknown``."""
        ...

    def stages(self, run_id: RunId) -> Sequence[Stage]:
        """The run's stages, oldest first."""
        ...

    def run_by_slurm_job(self, cluster: str, slurm_job_id: int) -> tuple[Run, Stage]:
        """The newest stage that was submitted as this Slurm job, and its run; raises NotFound ``node.not_ours``."""
        ...

    def kill_switches(self, *, active: bool = True) -> Sequence[KillSwitch]:
        """The kill switches in force, or all that ever were, oldest first."""
        ...

    def register_head(self) -> RegisterHead:
        """The head of the register; revision 0 with an empty seal where it was never changed."""
        ...

    def register(self) -> Register:
        """All of the register as it stands in the tables, checked by nobody: see ``bridge.sealed``."""
        ...

    def head(self) -> Head:
        """The audit log's head."""
        ...

    def entries(self, after: int = -1) -> Iterable[Entry]:
        """The audit log's entries with seq > ``after``, in order; consume them while the view is open."""
        ...

    def timeline(
        self, *, run_id: RunId | None = None, job_id: int | None = None, reference: str | None = None
    ) -> Sequence[Entry]:
        """All entries of a run, of a GitLab job (its runs and its refusals), or of one reference, in order."""
        ...


class Tx(View, Protocol):
    """Changes the book, all or nothing."""

    def append(self, record: Record) -> int:
        """Add ``record`` to the audit log; its seq."""
        ...

    def open_run(self, opening: Opening) -> Opened:
        """Use up the token (issuer, jti of the grant's identity) and open its run.

        The runner's own retry, see ``oidc.replay``, gets the same run with the next attempt, in state ADMITTED again
        and with the new grant, seal, session and end. Raises TokenRefused ``token.replayed`` for anything else.
        """
        ...

    def update_run_state(self, run_id: RunId, from_states: Collection[RunState], to_state: RunState) -> Run:
        """Move the run; raises Conflict ``run.state`` if it is in none of ``from_states``, NotFound ``run.unknown``."""
        ...

    def set_session(self, run_id: RunId, session_hash: bytes) -> None:
        """Replace the session secret's hash; raises NotFound ``run.unknown``."""
        ...

    def add_stage(self, stage: Stage) -> Stage:
        """Record a new stage; the same again (run, invocation, name, kind) gives the recorded one.

        Raises Conflict ``stage.invocation`` when the invocation is another stage's.
        """
        ...

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
        """Move the stage, and set the fields that are not None.

        Raises Conflict ``stage.state`` if it is in none of ``from_states``, NotFound ``stage.unknown``.
        """
        ...

    def kill(self, switch: KillSwitch) -> KillSwitch:
        """Put a kill switch in force; returns the one that stops just the same already, where there is one."""
        ...

    def lift(self, switch_id: str, actor: str) -> KillSwitch:
        """Lift a kill switch; raises NotFound ``kill.unknown``, Conflict ``kill.lifted``."""
        ...

    def put_link(self, link: Link) -> None:
        """Add a link, or replace the one of the same id.

        Raises Conflict ``link.taken`` where the GitLab user has another one in force, and Defect ``db.integrity`` for
        an administrator's link that nobody else approved.
        """
        ...

    def put_consent(self, consent: Consent) -> None:
        """Replace what the owner of the account has said before."""
        ...

    def set_register_head(self, head: RegisterHead) -> None:
        """Replace the head; raises Defect ``db.integrity`` unless it is the next revision."""
        ...

    def edits(self) -> Sequence[Edit]:
        """What this transaction did to the register, in order, from memory: nobody else can write there."""
        ...

    def after_commit(self, do: Callable[[], None]) -> None:
        """Call ``do`` as soon as the transaction is durable, before this process begins another; else never."""
        ...

    def forget_tokens(self) -> int:
        """Drop the used tokens that expired so long ago that no clock lets them in again; how many."""
        ...


class Ledger(Protocol):
    """The book."""

    def begin(self) -> AbstractContextManager[Tx]:
        """A writing transaction; raises Outage ``db.busy`` or ``db.unavailable``, also when it can't be committed."""
        ...

    def read(self) -> AbstractContextManager[View]:
        """A reading transaction, which waits for no writer; raises Outage ``db.unavailable``."""
        ...
