"""What lists of the admin API are made of: questions that indexes answer, and rows without their grants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bridge.model import RunId, RunState


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; None asks nothing."""

    state: RunState | None = None
    account: str | None = None
    cluster: str | None = None
    issuer: str | None = None
    user_id: int | None = None
    """Of ``issuer``."""
    project_id: int | None = None
    since: datetime | None = None
    """Admitted then or later."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run, less its grant."""

    run_id: RunId
    issuer: str
    job_id: int
    user_id: int | None
    project_id: int | None
    runner_id: int | None
    cluster: str
    account: str
    uid: int
    state: RunState
    attempt: int
    created_at: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class RunnerRow:
    """A GitLab Runner, as far as runs have shown it."""

    issuer: str
    runner_id: int
    runs: int
    first_run_at: datetime
    last_run_at: datetime


@dataclass(frozen=True, slots=True)
class BundleRow:
    """A policy bundle that is kept, less its files."""

    content_hash: str
    size: int
    """Bytes of all files together."""
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """An operator's word that a run must end."""

    run_id: RunId
    cancelled_by: str
    reason: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries of the audit log; None asks nothing."""

    type: str | None = None
    phase: str | None = None
    run_id: str | None = None
    job_id: int | None = None
    reference: str | None = None
