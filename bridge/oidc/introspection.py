"""From a job token alone to an identity, for projects that have no ``id_tokens:`` block.

GitLab's ``GET /job`` is all that vouches for such a job. It says who started it, for which project, ref and commit, by
which pipeline and on which runner. It does not say whether the ref is protected, and for merge requests not whose code
it is: the first counts as no, the second is refused, and the rest is absent. Whether this is enough is policy's to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from bridge.errors import TokenRefused
from bridge.model import Evidence, EvidenceLevel, Identity
from bridge.oidc.gitlab import JobCheck, LiveJob
from bridge.oidc.refusal import ADD_THE_BLOCK

OWN_CODE: Final = frozenset({"push", "web", "api", "schedule"})
"""Pipeline sources that run a project's own branches and tags, so that the running project is the code's too."""

_MERGE_REQUEST_REF: Final = "refs/merge-requests/"
_JOB_PATH: Final = re.compile(r"/([A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)+)/-/jobs/([0-9]+)")


def identity(evidence: Evidence, jobs: JobCheck, issuers: Mapping[str, int], now: datetime) -> Identity:
    """The person and job that the job token in ``evidence`` stands for, as GitLab says at the moment ``now``.

    ``issuers`` are the GitLabs that may vouch alone, with the longest life in seconds that a run may have. Raises
    TokenRefused ``token.missing`` for others, ``job.unproven`` where GitLab does not say enough, and what
    ``JobCheck.introspect`` raises.
    """
    issuer = evidence.facts.server_url
    if issuer is None or issuer not in issuers:
        raise TokenRefused(
            "token.missing",
            "The job has no id_token, and the bridge admits none without.",
            ADD_THE_BLOCK,
            detail=f"the runner's server is {issuer}, and job_token_evidence is not set for it",
        )
    job = jobs.introspect(issuer, evidence.job_token, evidence.facts)
    # The runner's word for the time-out only shortens: the job token dies with the job.
    life = max(1, min(evidence.facts.timeout_seconds, issuers[issuer]))
    return _identity(issuer, job, life, now)


def _identity(issuer: str, job: LiveJob, life: int, now: datetime) -> Identity:
    if job.runner_id is None:
        raise _unproven("on which runner it runs", job)
    if job.source not in OWN_CODE or job.ref.startswith(_MERGE_REQUEST_REF):
        raise _unproven("whose code it runs", job)
    return Identity(
        evidence=EvidenceLevel.INTROSPECTED,
        issuer=issuer,
        user_id=job.user_id,
        user_login=job.user_login,
        project_id=job.project_id,
        project_path=_project_path(issuer, job),
        job_project_id=job.project_id,
        namespace_id=None,
        pipeline_id=job.pipeline_id,
        pipeline_source=job.source,
        job_id=job.job_id,
        job_name=job.name,
        ref=job.ref,
        ref_type="tag" if job.tag else "branch",
        ref_protected=False,
        sha=job.sha,
        runner_id=job.runner_id,
        runner_environment=None,
        environment=None,
        jti=f"job:{job.job_id}",
        token_expires_at=now + timedelta(seconds=life),
        job_timeout_seconds=life,
    )


def _project_path(issuer: str, job: LiveJob) -> str | None:
    """The project's path out of the job's own URL, ``<GitLab>/<path>/-/jobs/<id>``; None for any other form."""
    try:
        path = urlsplit(job.web_url).path
    except ValueError:
        return None
    found = _JOB_PATH.fullmatch(path.removeprefix(urlsplit(issuer).path.rstrip("/")))
    return found[1] if found and int(found[2]) == job.job_id else None


def _unproven(what: str, job: LiveJob) -> TokenRefused:
    return TokenRefused(
        "job.unproven",
        f"The job has no id_token, and without one GitLab does not say {what}.",
        ADD_THE_BLOCK,
        job_id=job.job_id,
        source=job.source,
    )
