"""The step from signed claims and a live job to an identity: names become ids, strings become values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bridge.model import EvidenceLevel, ExternalIdentity, Identity, SignedClaims
from bridge.oidc.gitlab import LiveJob


def identity(claims: SignedClaims, job: LiveJob) -> Identity:
    """The person and job that ``claims`` (checked) and ``job`` (confirmed by GitLab for the same claims) name.

    ``job_timeout_seconds`` is exp - iat: GitLab signs tokens for as long as the job may run
    (``lib/gitlab/ci/jwt.rb``, ``ttl``), and nothing else that it tells us about the time-out is signed.
    """
    return Identity(
        evidence=EvidenceLevel.SIGNED,
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
        ref_protected=_true(claims["ref_protected"]),
        sha=claims["sha"],
        runner_id=claims["runner_id"],
        runner_environment=claims["runner_environment"],
        environment=claims.get("environment"),
        jti=claims["jti"],
        token_expires_at=datetime.fromtimestamp(claims["exp"], tz=UTC),
        job_timeout_seconds=claims["exp"] - claims["iat"],
        **_further(claims),
    )


def _further(claims: SignedClaims) -> Mapping[str, Any]:
    """What GitLab signs in some versions and for some jobs only; null is the same as missing."""
    protected, groups = claims.get("environment_protected"), claims.get("groups_direct")
    identities = claims.get("user_identities")
    return {
        "ref_path": claims.get("ref_path"),
        "user_access_level": claims.get("user_access_level"),
        "ci_config_ref_uri": claims.get("ci_config_ref_uri"),
        "ci_config_sha": claims.get("ci_config_sha"),
        "environment_protected": None if protected is None else _true(protected),
        "deployment_tier": claims.get("deployment_tier"),
        "user_identities": None if identities is None else tuple(map(_external, identities)),
        "groups": None if groups is None else tuple(groups),
    }


def _external(member: Mapping[str, str]) -> ExternalIdentity:
    return ExternalIdentity(member["provider"], member["extern_uid"])


def _true(text: str) -> bool:
    return text == "true"
