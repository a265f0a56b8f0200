"""The records of the stand-in: users, projects, runners, pipelines and jobs, all frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from realm.gitlab.cifile import JobSpec

ACCESS_LEVELS = {10: "guest", 20: "reporter", 30: "developer", 40: "maintainer", 50: "owner"}
"""GitLab's numeric access levels and the words that the `user_access_level` claim uses."""

DEVELOPER = 30
MAINTAINER = 40


class JobStatus(StrEnum):
    """created -> pending -> running -> success | failed; running -> canceling -> canceled; created -> skipped."""

    CREATED = "created"
    PENDING = "pending"
    RUNNING = "running"
    CANCELING = "canceling"
    """The runner was told to stop and is still running after_script and clean-up."""
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"


LIVE = frozenset({JobStatus.RUNNING, JobStatus.CANCELING})
"""States in which the job's token is accepted."""

FINISHED = frozenset({JobStatus.SUCCESS, JobStatus.FAILED, JobStatus.CANCELED, JobStatus.SKIPPED})


@dataclass(frozen=True)
class Identity:
    """A link of a GitLab user to an account of an identity provider (LDAP, SAML, ...)."""

    provider: str
    extern_uid: str


@dataclass(frozen=True)
class User:
    """A person with one personal access token; `state` is `active` or `blocked`."""

    id: int
    username: str
    name: str
    email: str
    token: str = field(repr=False)
    state: str = "active"
    admin: bool = False
    identities: tuple[Identity, ...] = ()
    pass_identities: bool = False
    """Whether `user_identities` is put into id_tokens (a preference of the user in GitLab)."""
    groups_direct: tuple[str, ...] | None = None
    password: str = field(default="", repr=False)
    """For the sign-in page; empty for a person who has only the token."""


@dataclass(frozen=True)
class Variable:
    """A CI/CD variable as the coordinator hands it to a runner."""

    key: str
    value: str = field(repr=False)
    public: bool = True
    file: bool = False
    masked: bool = False
    raw: bool = False
    protected: bool = False
    """Handed out on protected refs only (project variables)."""


@dataclass(frozen=True)
class Project:
    """A project with a bare repository; `members` maps user id to access level."""

    id: int
    path: str
    namespace_id: int
    namespace_path: str
    visibility: str = "private"
    default_branch: str = "main"
    members: Mapping[int, int] = field(default_factory=dict)
    protected_refs: frozenset[str] = frozenset()
    variables: tuple[Variable, ...] = ()
    forked_from_id: int | None = None
    timeout_seconds: int = 3600

    @property
    def full_path(self) -> str:
        """The path with its namespace, such as `hpc/solver`."""
        return f"{self.namespace_path}/{self.path}"


@dataclass(frozen=True)
class Runner:
    """A registered runner; its token is the runner authentication token (`glrt-...`)."""

    id: int
    token: str = field(repr=False)
    description: str = ""
    tags: frozenset[str] = frozenset()
    run_untagged: bool = True
    environment: str = "self-hosted"
    paused: bool = False


@dataclass(frozen=True)
class Pipeline:
    """One pipeline; `source_project_id` differs from `project_id` for merge requests that come from a fork."""

    id: int
    iid: int
    project_id: int
    source_project_id: int
    user_id: int
    ref: str
    ref_type: str
    sha: str
    source: str
    created_at: datetime
    protected: bool
    variables: tuple[Variable, ...] = ()
    merge_request_iid: int | None = None

    @property
    def ref_path(self) -> str:
        """The full name of the ref, `refs/heads/...` or `refs/tags/...`."""
        return f"refs/{'tags' if self.ref_type == 'tag' else 'heads'}/{self.ref}"


@dataclass(frozen=True)
class Artifact:
    """An uploaded archive in the artifact folder."""

    filename: str
    size: int
    file_type: str = "archive"
    file_format: str = "zip"


@dataclass(frozen=True)
class Job:
    """One job; times are UTC, `token` is its CI_JOB_TOKEN."""

    id: int
    token: str = field(repr=False)
    pipeline_id: int
    project_id: int
    user_id: int
    spec: JobSpec
    timeout_seconds: int
    created_at: datetime
    status: JobStatus = JobStatus.CREATED
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    runner_id: int | None = None
    graceful_cancel: bool = False
    """Whether the runner that took the job announced the `cancel_gracefully` feature."""
    exit_code: int | None = None
    failure_reason: str | None = None
    allow_failure: bool = False
    artifacts: tuple[Artifact, ...] = ()
    id_tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
