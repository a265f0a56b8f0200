"""The bridge's book: every change of a run and its audit record go into one transaction, or neither happens.

``with ledger.begin() as tx`` is the only way to change anything; when the block is left normally all of it is durable,
when it is left by an exception nothing of it was ever there. Writers wait for each other, so that nobody else changes
the book during a transaction. ``bridge.db`` implements this.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bridge.access import ApiToken, SessionEpoch
from bridge.audit.log import Entry, Head
from bridge.audit.record import Record
from bridge.decisions import KeptDecision
from bridge.listing import BundleRow, Cancel, EntryFilter, RunFilter, RunnerRow, RunRow
from bridge.model import Grant, KillSwitch, Run, RunId, RunState, Stage, StageState
from bridge.proposals import Activation, Proposal
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
    grant_json: bytes
    """The grant's canonical JSON, as it was sealed and stored."""


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


class Claim(enum.Enum):
    """What became of the wish to work on a request under a key, where there is no answer yet."""

    NEW = enum.auto()
    """The caller works on it now."""
    BUSY = enum.auto()
    """Somebody works on it, or nobody knows what became of it."""
    OTHER = enum.auto()
    """The key is that of another request."""


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

    def bundle_files(self, content_hash: str) -> Mapping[str, str]:
        """The text of each file of a policy bundle by its path; raises NotFound ``policy.no_bundle``.

        Whoever relies on it hashes it again, as ``active.kept_files`` does: the table is under no seal but its hash.
        Raises Defect ``policy.content`` for what no bridge wrote.
        """
        ...

    def api_token_uses(self) -> Mapping[str, datetime]:
        """The hour in which each API token was last used, by its id; under no seal, for people to look at."""
        ...

    def decision(self, reference: str) -> KeptDecision | None:
        """The question and answer under a reference, where they are kept."""
        ...

    def decisions(self, since: datetime, most: int) -> Sequence[KeptDecision]:
        """Kept decisions of that moment and later, newest first, as many as ``most``."""
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

    def list_runs(self, wanted: RunFilter, before: tuple[datetime, RunId] | None, limit: int) -> Sequence[RunRow]:
        """Runs, newest first, from the one after ``before`` on (its moment and id)."""
        ...

    def list_runners(self, after: tuple[str, int] | None, limit: int) -> Sequence[RunnerRow]:
        """The runners that runs came by, by issuer and id, from the one after ``after`` on."""
        ...

    def list_bundles(self, before: tuple[datetime, str] | None, limit: int) -> Sequence[BundleRow]:
        """The policy bundles that are kept, newest first, from the one after ``before`` on (its moment and hash)."""
        ...

    def find_entries(self, wanted: EntryFilter, first: int, last: int, limit: int, *, newest: bool) -> Sequence[Entry]:
        """Entries of the audit log with seq from ``first`` to ``last``, both included, the newest or oldest first."""
        ...

    def first_seq_since(self, moment: datetime) -> int:
        """The seq of the first entry written at ``moment`` or later; the log's size where there is none."""
        ...

    def cancels(self, run_id: RunId | None = None) -> Sequence[Cancel]:
        """What operators cancelled: one run, or all that have not ended yet."""
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

    def put_proposal(self, proposal: Proposal) -> None:
        """Add a proposal, or replace the one of the same id.

        Raises Defect ``db.integrity`` for one that its own author, or nobody, approved, or whose bundle is not kept.
        """
        ...

    def put_activation(self, activation: Activation) -> None:
        """Add an activation, or replace the one of the same number.

        Raises Defect ``db.integrity`` where the bundle is not kept, a proposal would be activated twice, or an
        emergency would be longer than four hours or confirmed by who asked for it.
        """
        ...

    def keep_bundle(self, content_hash: str, files: Mapping[str, str], by: str, now: datetime) -> None:
        """Keep a bundle under the hash of its content, for good; one that is kept already stays as it is."""
        ...

    def put_api_token(self, token: ApiToken) -> None:
        """Add an API token, or replace the one of the same id.

        Raises Defect ``db.integrity`` for one that somebody made for somebody else, or for more than 366 days.
        """
        ...

    def put_session_epoch(self, epoch: SessionEpoch) -> None:
        """Replace the epoch of a principal's sessions."""
        ...

    def note_api_token_use(self, token_id: str, at: datetime) -> None:
        """Take down that an API token was used; this is no change of the register."""
        ...

    def cancel_run(self, cancel: Cancel) -> Cancel:
        """Take down that a run must end; returns the older word of the same, where there is one."""
        ...

    def claim_key(self, principal: str, key: str, request_sha256: str) -> Claim | bytes:
        """Claim an idempotency key for a request, or return the answer that is kept under it for the same request."""
        ...

    def settle_key(self, principal: str, key: str, answer: bytes | None) -> None:
        """Keep the answer under the key, or with None let go of the key, so that the request can come again."""
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

    def keep_decision(self, decision: KeptDecision) -> None:
        """Keep what policy was asked and said; again under the same reference replaces it."""
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
