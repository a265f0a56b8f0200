"""One GitLab instance: its address, its records, its keys and its folders, handed to every router."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from realm.gitlab.faults import Faults
from realm.gitlab.keys import KeySet
from realm.gitlab.model import Job
from realm.gitlab.repositories import Repositories
from realm.gitlab.requestlog import RequestLog
from realm.gitlab.sessions import Sessions
from realm.gitlab.store import Store


@dataclass(frozen=True)
class Instance:
    """The composition of the stand-in; `external_url` has no trailing slash and is the OIDC issuer."""

    external_url: str
    store: Store
    keys: KeySet
    repositories: Repositories
    artifacts_dir: Path
    faults: Faults
    requests: RequestLog
    sessions: Sessions
    trace_update_seconds: int = 3

    @property
    def host(self) -> str:
        """Host and port of the external URL, as used in `ci_config_ref_uri`."""
        return urlsplit(self.external_url).netloc

    def artifact_file(self, job: Job, file_type: str) -> Path:
        """Where an uploaded artifact of a job lies."""
        return self.artifacts_dir / f"{job.id}-{file_type}"


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def new_token(prefix: str) -> str:
    """A random token with GitLab's prefix for its kind (`glpat-`, `glrt-`, `glcbt-`)."""
    return prefix + secrets.token_hex(20)
