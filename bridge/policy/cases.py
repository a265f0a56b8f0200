"""Examples that a bundle must decide as written down: ``cases/*.toml``, for authors, reviewers and tests.

A case names a GitLab user, what the directory says of the account, the job and what it asks of Slurm; everything left
out is an ordinary push to a protected branch, on a Wednesday at noon UTC. ``trial`` decides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Self

from pydantic import AwareDatetime, Field, model_validator

from bridge.model import EvidenceLevel
from bridge.policy.files import Table, parse_toml
from bridge.policy.names import AccountName, RuleName

FOLDER: Final = "cases/"
ALLOWED: Final = "allowed"
WEDNESDAY: Final = datetime(2026, 11, 18, 12, tzinfo=UTC)
"""When a case happens that says nothing else."""

PROVEN_BY_JOB_TOKEN: Final = frozenset(
    {
        "evidence",
        "project_id",
        "project_path",
        "job_project_id",
        "pipeline_source",
        "job_name",
        "ref",
        "ref_type",
        "runner_id",
    }
)
"""What of a case's job ``oidc.introspection`` finds out; everything else is absent, and no branch protected."""


class Login(Table):
    """ExternalIdentity, field by field."""

    provider: str
    extern_uid: str


class Job(Table):
    """What differs from an ordinary push to a protected branch of project 7."""

    evidence: EvidenceLevel = Field(default=EvidenceLevel.SIGNED, strict=False)
    """With ``job_token`` all that a job token does not prove is absent."""
    project_id: int = 7
    project_path: str = "group/project"
    job_project_id: int | None = None
    """The same as ``project_id`` when left out: not a fork."""
    namespace_id: int = 5
    pipeline_source: str = "push"
    job_name: str = "build"
    ref: str = "main"
    ref_type: str = "branch"
    ref_protected: bool = True
    runner_id: int = 1
    runner_environment: str = "self-hosted"
    environment: str | None = None
    ref_path: str | None = None
    ci_config_ref_uri: str | None = None
    ci_config_sha: str | None = None
    environment_protected: bool | None = None
    deployment_tier: str | None = None
    user_access_level: str | None = None
    user_identities: list[Login] | None = None
    groups: list[str] | None = None

    @model_validator(mode="after")
    def _provable(self) -> Self:
        said = sorted(self.model_fields_set - PROVEN_BY_JOB_TOKEN)
        if self.evidence is EvidenceLevel.INTROSPECTED and said:
            raise ValueError(f"a job token does not prove {said[0]}")
        return self


class Posix(Table):
    """What the directory says of the account; the row's own uid when left out."""

    uid: int | None = None
    gid: int | None = None
    """The same as the uid when left out."""
    groups: list[AccountName] = Field(default=[])
    shell: str = "/bin/bash"
    missing: bool = False
    """The directory does not know the account."""


class Asked(Table):
    """SlurmRequest, field by field."""

    partition: str | None = None
    qos: str | None = None
    slurm_account: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    memory_mib: int | None = None
    time_minutes: int | None = None
    constraint: str | None = None
    exclusive: bool = False


class Expected(Table):
    """The decision; what is left out is not compared."""

    decision: str
    """``allowed``, or the code of the refusal, e.g. ``account.not_mapped``."""
    account: AccountName | None = None
    policies: list[RuleName] | None = None
    limits: list[RuleName] | None = None
    partition: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    time_minutes: int | None = None


class Situation(Table):
    """A made-up job."""

    issuer: str
    user_id: int
    user_login: str = "someone"
    cluster: RuleName | None = None
    at: AwareDatetime = WEDNESDAY
    posix: Posix = Posix()
    job: Job = Job()
    asked: Asked = Asked()


class Case(Situation):
    """One example."""

    name: str = Field(min_length=1)
    expect: Expected


class _CasesFile(Table):
    case: list[Case] = Field(min_length=1)


class _MadeUp(Situation):
    """A case that need not say how it ought to come out."""

    name: str = ""
    expect: Expected | None = None


class _MadeUpFile(Table):
    case: list[_MadeUp] = Field(min_length=1, max_length=1)


def parse_cases(texts: Mapping[str, str]) -> tuple[Case, ...]:
    """The cases of all files under ``cases/``; raises InvalidBundle."""
    files = [name for name in sorted(texts) if name.startswith(FOLDER)]
    return tuple(case for name in files for case in parse_toml(name, texts[name], _CasesFile).case)


def parse_situation(name: str, text: str) -> Situation:
    """The one ``[[case]]`` of the text, whose name and expectation may be left out; raises InvalidBundle."""
    return parse_toml(name, text, _MadeUpFile).case[0]
