"""A typed, read-only view of one job payload of the coordinator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from realm.runner.variables import Variable, from_payload

DEFAULT_TIMEOUT_SECONDS = 7200
"""GitLab Runner's DefaultTimeout, when the server names none."""


@dataclass(frozen=True)
class Job:
    """What the runner reads of a payload; `payload` itself is written to JOB_RESPONSE_FILE unchanged."""

    payload: Mapping[str, Any] = field(repr=False)
    id: int
    token: str = field(repr=False)
    variables: tuple[Variable, ...]
    timeout: int

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Job":
        """Read a payload of `POST /api/v4/jobs/request`."""
        timeout = int((payload.get("runner_info") or {}).get("timeout") or 0)
        return cls(
            payload=payload,
            id=int(payload["id"]),
            token=str(payload["token"]),
            variables=tuple(from_payload(payload.get("variables") or [])),
            timeout=timeout if timeout > 0 else DEFAULT_TIMEOUT_SECONDS,
        )

    @property
    def git(self) -> Mapping[str, Any]:
        """`git_info`."""
        return self.payload.get("git_info") or {}

    @property
    def info(self) -> Mapping[str, Any]:
        """`job_info`."""
        return self.payload.get("job_info") or {}

    @property
    def project_path(self) -> str:
        """`namespace/project`."""
        return str(self.info.get("project_full_path") or self.info.get("project_name") or "project")

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        """All steps, after_script among them."""
        return list(self.payload.get("steps") or [])

    @property
    def artifacts(self) -> list[Mapping[str, Any]]:
        """What to upload."""
        return list(self.payload.get("artifacts") or [])

    @property
    def caches(self) -> list[Mapping[str, Any]]:
        """What to keep between jobs."""
        return list(self.payload.get("cache") or [])

    @property
    def dependencies(self) -> list[Mapping[str, Any]]:
        """Jobs with archives to download."""
        return [item for item in self.payload.get("dependencies") or [] if item.get("artifacts_file")]

    @property
    def services(self) -> list[Mapping[str, Any]]:
        """Service containers, which a custom executor only sees as a variable."""
        return list(self.payload.get("services") or [])

    @property
    def mask_prefixes(self) -> list[str]:
        """Token prefixes that the server wants masked."""
        return list((self.payload.get("features") or {}).get("token_mask_prefixes") or [])
