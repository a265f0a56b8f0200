"""The step from signed claims and a live job to an identity: names become ids, strings become values."""

from __future__ import annotations

from datetime import UTC, datetime

from bridge.model import Identity, SignedClaims
from bridge.oidc.gitlab import LiveJob


def identity(claims: SignedClaims, job: LiveJob) -> Identity:
    """The person and job that ``claims`` (checked) and ``job`` (confirmed by GitLab for the same claims) name.

    ``job_timeout_seconds`` is exp - iat: GitLab signs tokens for as long as the job may run
    (``lib/gitlab/ci/jwt.rb``, ``ttl``), and nothing else that it tells us about the time-out is signed.
    """
    return Identity(
        issuer=claims["iss"],
        user_id=int(claims["user_id"]),
        user_login=claims["user_login"],
        project_id=int(claims["project_id"]),
        project_path=claims["project_path"],
        job_project_id=int(claims["job_project_id"]),
        namespace_id=int(claims["namespace_id"]),
        pipeline_id=int(claims["pipeline_id"]),
        pipeline_source=claims["pipeline_source"],
        job_id=int(claims["job_id"]),
        job_name=job.name,
        ref=claims["ref"],
        ref_type=claims["ref_type"],
        ref_protected=claims["ref_protected"] == "true",
        sha=claims["sha"],
        runner_id=claims["runner_id"],
        runner_environment=claims["runner_environment"],
        environment=claims.get("environment"),
        jti=claims["jti"],
        token_expires_at=datetime.fromtimestamp(claims["exp"], tz=UTC),
        job_timeout_seconds=claims["exp"] - claims["iat"],
    )
