"""Asks GitLab whether a job is real and alive: ``GET /api/v4/job`` with the job's own token, by python-gitlab.

Three sources must agree: the signed claims, what the runner says of the job, and what GitLab says of the job token. A
job token shows that a job runs; who started it is read from the signed claims, and only confirmed here. For a job
without claims (``oidc.introspection``) the other two must agree.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final, Protocol

import gitlab
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from bridge.errors import Outage
from bridge.model import JobFacts, SignedClaims
from bridge.oidc.refusal import job_refused
from bridge.oidc.strict_json import AmbiguousJson, loads_object

TOTAL_SECONDS: Final = 4.5
_WAIT_SECONDS: Final = 2.0
MAX_ANSWER_BYTES: Final = 256 * 1024
"""GitLab's answer holds the commit message, which a project writes; its own cap is 100 KiB."""

_JOB_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_MERGE_REQUEST: Final = "merge_request_event"


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that GitLab says is running at this moment, in agreement with the token and the runner."""

    job_id: int
    user_id: int
    project_id: int
    """The project whose runner runs the job: the token's ``job_project_id``."""
    pipeline_id: int
    ref: str
    sha: str
    name: str
    stage: str
    runner_id: int | None
    source: str
    """Of the pipeline, as in the claim ``pipeline_source``."""
    tag: bool
    """Whether ``ref`` is a tag."""
    user_login: str
    web_url: str


@dataclass(frozen=True, slots=True)
class Pulse:
    """What GitLab says later on of a job that was admitted."""

    job_id: int
    canceling: bool
    """Whether somebody has cancelled it, and its runner is about to end it."""


class JobCheck(Protocol):
    """Says whether a job is what it was presented as, and runs."""

    def alive(self, claims: SignedClaims, job_token: str, facts: JobFacts) -> LiveJob:
        """The running job that all sources agree upon.

        Raises TokenRefused ``job.mismatch``, ``job.not_running`` or ``job.user_blocked``;
        Outage ``gitlab.unreachable``.
        """
        ...

    def introspect(self, issuer: str, job_token: str, facts: JobFacts) -> LiveJob:
        """The running job that the GitLab ``issuer`` and the runner agree upon; raises as ``alive`` does."""
        ...


class _Session(requests.Session):
    """A pool of connections that keeps no cookies and takes no settings from the environment or a .netrc."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        # The JOB-TOKEN header would follow a redirect to any host.
        self.max_redirects = 0
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.mount("https://", HTTPAdapter(pool_connections=4, pool_maxsize=16, max_retries=0))


class GitLabJobCheck:
    """The job check of one GitLab; safe to use from many threads."""

    def __init__(self, url: str, ca_file: Path) -> None:
        """``url`` is GitLab's base URL (https), ``ca_file`` the only CAs (PEM) trusted for it."""
        if not url.startswith("https://"):
            raise ValueError(f"GitLab's URL must be https: {url!r}")
        self._url = url
        self._ca_file = str(ca_file)
        self._session = _Session()

    def alive(self, claims: SignedClaims, job_token: str, facts: JobFacts) -> LiveJob:
        """The running job that token, runner and GitLab agree upon; see JobCheck.alive."""
        return self._alive(claims, job_token, facts)

    def introspect(self, issuer: str, job_token: str, facts: JobFacts) -> LiveJob:
        """See JobCheck.introspect; ``issuer`` is this GitLab."""
        return self._alive(None, job_token, facts)

    def _alive(self, claims: SignedClaims | None, job_token: str, facts: JobFacts) -> LiveJob:
        answer = self._ask(job_token)
        try:
            job = _live_job(answer)
            status, user_state = answer["status"], answer["user"]["state"]
        except (KeyError, TypeError) as error:
            raise _unreachable("GitLab's answer lacks fields of a job") from error
        _check_agreement(claims, facts, job)
        if status != "running":
            raise job_refused("not_running", "GitLab's state of the job is not running", job_id=job.job_id)
        if user_state != "active":
            raise job_refused("user_blocked", "GitLab's state of the user is not active", job_id=job.job_id)
        return job

    def state(self, job_token: str) -> Pulse:
        """What becomes of a job that was admitted before, while it runs or its runner is about to end it.

        Raises TokenRefused ``job.not_running`` or ``job.user_blocked``; Outage ``gitlab.unreachable``.
        """
        answer = self._ask(job_token)
        try:
            job_id, status, user_state = _int(answer["id"]), _str(answer["status"]), answer["user"]["state"]
        except (KeyError, TypeError) as error:
            raise _unreachable("GitLab's answer lacks fields of a job") from error
        if status not in ("running", "canceling"):
            raise job_refused("not_running", "GitLab's state of the job is not running any more", job_id=job_id)
        if user_state != "active":
            raise job_refused("user_blocked", "GitLab's state of the user is not active any more", job_id=job_id)
        return Pulse(job_id, canceling=status == "canceling")

    def _ask(self, job_token: str) -> dict[str, Any]:
        if _JOB_TOKEN.fullmatch(job_token) is None:
            raise job_refused("not_running", "the job token is malformed")
        deadline = time.monotonic() + TOTAL_SECONDS
        server = gitlab.Gitlab(
            self._url,
            job_token=job_token,
            ssl_verify=self._ca_file,
            timeout=_WAIT_SECONDS,
            retry_transient_errors=False,
            session=self._session,
        )
        try:
            response = server.http_request(
                "get", "/job", streamed=True, obey_rate_limit=False, retry_transient_errors=False, max_retries=0
            )
            with response:
                return loads_object(_read(response, deadline))
        except gitlab.GitlabAuthenticationError as error:
            raise job_refused("not_running", "GitLab does not know the job token, or not any more") from error
        except gitlab.GitlabHttpError as error:
            raise _http_error(error) from error
        except (requests.RequestException, gitlab.GitlabError, HTTPError, AmbiguousJson, OSError) as error:
            raise _unreachable(type(error).__name__) from error


class JobChecks:
    """The job check of every issuer, chosen by the claims' ``iss``."""

    def __init__(self, checks: Mapping[str, JobCheck]) -> None:
        self._checks = dict(checks)

    def alive(self, claims: SignedClaims, job_token: str, facts: JobFacts) -> LiveJob:
        """Ask the GitLab that signed the claims; see JobCheck.alive."""
        return self._checks[claims["iss"]].alive(claims, job_token, facts)

    def introspect(self, issuer: str, job_token: str, facts: JobFacts) -> LiveJob:
        """Ask the GitLab ``issuer``, which is configured; see JobCheck.introspect."""
        return self._checks[issuer].introspect(issuer, job_token, facts)


def _read(response: requests.Response, deadline: float) -> bytes:
    """The body, bounded in size and time: requests' own time-out counts each read anew."""
    body = bytearray()
    while chunk := response.raw.read1(64 * 1024, decode_content=True):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise OSError("GitLab's answer is too large")
        if time.monotonic() > deadline:
            raise TimeoutError("GitLab is too slow")
    return bytes(body)


def _live_job(answer: Mapping[str, Any]) -> LiveJob:
    """The fields of API entity ``Ci::Job`` that name a job; raises KeyError or TypeError for anything else."""
    runner = answer.get("runner")
    return LiveJob(
        job_id=_int(answer["id"]),
        user_id=_int(answer["user"]["id"]),
        project_id=_int(answer["pipeline"]["project_id"]),
        pipeline_id=_int(answer["pipeline"]["id"]),
        ref=_str(answer["ref"]),
        sha=_str(answer["pipeline"]["sha"]),
        name=_str(answer["name"]),
        stage=_str(answer["stage"]),
        runner_id=None if runner is None else _int(runner["id"]),
        source=_word(answer["pipeline"]["source"]),
        tag=_bool(answer["tag"]),
        user_login=_str(answer["user"]["username"]),
        web_url=_str(answer["web_url"]),
    )


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not an integer")
    return value


def _str(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("not a string")
    return value


def _word(value: Any) -> str:
    if _WORD.fullmatch(_str(value)) is None:
        raise TypeError("not a word")
    return str(value)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("not a boolean")
    return value


def _check_agreement(claims: SignedClaims | None, facts: JobFacts, job: LiveJob) -> None:
    """Each row: a name, and what token, runner and GitLab say; None where a source does not say."""
    claimed = {} if claims is None else _claimed(claims)
    rows: list[tuple[str, object, object]] = [
        ("job_id", facts.job_id, job.job_id),
        ("user_id", facts.user_id, job.user_id),
        ("project_id", facts.project_id, job.project_id),
        ("pipeline_id", facts.pipeline_id, job.pipeline_id),
        ("ref", facts.ref, job.ref),
        ("sha", facts.sha, job.sha),
        ("job_name", facts.job_name, job.name),
        ("stage", facts.stage, job.stage),
        ("runner_id", None, job.runner_id),
    ]
    differing = [name for name, *said in rows if len({claimed.get(name), *said} - {None}) > 1]
    if differing:
        raise job_refused("mismatch", f"token, runner and GitLab differ in {', '.join(differing)}", job_id=facts.job_id)


def _claimed(claims: SignedClaims) -> dict[str, object]:
    """What the token says of each row, where it says something."""
    return {
        "job_id": int(claims["job_id"]),
        "user_id": int(claims["user_id"]),
        "project_id": int(claims["job_project_id"]),
        "pipeline_id": int(claims["pipeline_id"]),
        "ref": _claimed_ref(claims),
        "sha": claims["sha"],
        "runner_id": claims["runner_id"],
    }


def _claimed_ref(claims: SignedClaims) -> str | None:
    """The claim ``ref``; for merge requests it is the source branch, where job and runner say refs/merge-requests/."""
    return None if claims["pipeline_source"] == _MERGE_REQUEST else str(claims["ref"])


def _http_error(error: gitlab.GitlabHttpError) -> Exception:
    if error.response_code == 403:
        return job_refused("not_running", "GitLab refuses the job token: 403")
    return _unreachable(f"answer {error.response_code}")


def _unreachable(reason: str) -> Outage:
    return Outage(
        "gitlab.unreachable",
        "GitLab could not be asked whether this job is running.",
        "Run the job again in a few minutes; administrators: check that the bridge reaches GitLab's API.",
        reason=reason,
    )
