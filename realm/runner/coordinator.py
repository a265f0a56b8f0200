"""The runner's side of GitLab's coordinator API, over TLS with the configured authority."""

import re
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx2

from realm.runner.config import RunnerConfig

VERSION = "18.10.0"
REVISION = "realm"
TIMEOUT_SECONDS = 30

FEATURES = {
    "variables": True,
    "image": False,
    "services": False,
    "artifacts": True,
    "cache": True,
    "fallback_cache_keys": True,
    "shared": True,
    "upload_multiple_artifacts": True,
    "upload_raw_artifacts": True,
    "refspecs": True,
    "masking": True,
    "raw_variables": True,
    "artifacts_exclude": True,
    "multi_build_steps": True,
    "trace_reset": True,
    "trace_checksum": True,
    "trace_size": True,
    "cancelable": True,
    "cancel_gracefully": True,
    "return_exit_code": True,
}
"""What the custom executor of GitLab Runner announces, less what this driver does not do."""


class Outcome(StrEnum):
    """What a trace patch or an update came to."""

    OK = "ok"
    PENDING = "pending"
    """202 to an update: the server has not all of the log yet."""
    RANGE = "range"
    """416: go on from the offset in the answer."""
    CANCEL = "cancel"
    ABORT = "abort"
    FAILED = "failed"
    """A network or server error; try again."""


@dataclass(frozen=True)
class Answer:
    """An outcome, the log offset that the server has, and the interval that it wishes (seconds)."""

    outcome: Outcome
    offset: int | None = None
    interval: float | None = None


class Coordinator:
    """One runner's connection; safe to use from several threads."""

    def __init__(self, config: RunnerConfig) -> None:
        self._config = config
        authority = str(config.tls_ca_file) if config.tls_ca_file else None
        self._http = httpx2.Client(
            base_url=f"{config.url}/api/v4",
            verify=ssl.create_default_context(cafile=authority),
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": f"gitlab-runner {VERSION} (realm)"},
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def verify(self) -> bool:
        """Whether the server knows this runner's token."""
        return self._http.post("/runners/verify", json={"token": self._config.token}).is_success

    def request_job(self) -> dict[str, Any] | None:
        """The next job's payload, or None.

        Raises:
            httpx2.HTTPError: the server could not be reached or refused.
        """
        response = self._http.post("/jobs/request", json={"token": self._config.token, "info": self._info()})
        if response.status_code == httpx2.codes.CREATED:
            return dict(response.json())
        response.raise_for_status()
        return None

    def patch_trace(self, job_id: int, token: str, content: bytes, start: int) -> Answer:
        """Send `content` as the log's bytes from offset `start` on."""
        headers = {
            "JOB-TOKEN": token,
            "Content-Type": "text/plain",
            "Content-Range": f"{start}-{start + len(content) - 1}",
        }
        try:
            response = self._http.patch(f"/jobs/{job_id}/trace", content=content, headers=headers)
        except httpx2.HTTPError:
            return Answer(Outcome.FAILED)
        if response.status_code == httpx2.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return Answer(Outcome.RANGE, _range_end(response), _interval(response))
        outcome = _outcome(response, httpx2.codes.ACCEPTED)
        return Answer(outcome, start + len(content), _interval(response))

    def update_job(self, job_id: int, body: dict[str, Any]) -> Answer:
        """Tell the job's state; `body` has the token, the state and the log's checksum and size."""
        try:
            response = self._http.put(f"/jobs/{job_id}", json={"info": self._info(), **body})
        except httpx2.HTTPError:
            return Answer(Outcome.FAILED)
        if response.status_code == httpx2.codes.ACCEPTED:
            return Answer(Outcome.PENDING, None, _interval(response))
        return Answer(_outcome(response, httpx2.codes.OK), None, _interval(response))

    def _info(self) -> dict[str, Any]:
        return {
            "name": "gitlab-runner",
            "version": VERSION,
            "revision": REVISION,
            "platform": "linux",
            "architecture": "amd64",
            "executor": "custom",
            "shell": self._config.shell,
            "features": FEATURES,
        }


def _outcome(response: httpx2.Response, good: int) -> Outcome:
    status = response.headers.get("Job-Status", "")
    if status in ("canceled", "failed") or response.status_code in (403, 404):
        return Outcome.ABORT
    if response.status_code != good:
        return Outcome.FAILED
    return Outcome.CANCEL if status == "canceling" else Outcome.OK


def _range_end(response: httpx2.Response) -> int:
    matched = re.fullmatch(r"\d+-(\d+)", response.headers.get("Range", ""))
    return int(matched[1]) if matched else 0


def _interval(response: httpx2.Response) -> float | None:
    text = response.headers.get("X-GitLab-Trace-Update-Interval", "")
    return float(text) if text.isdecimal() and int(text) > 0 else None
