"""Holds a bundle's schema against what this release tells policies, so that another one's is no surprise later.

Cedar checks each request against the schema; without this, a bundle whose schema lacks an attribute would load, and
then refuse every job.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import cedarpy

from bridge.model import EvidenceLevel, ExternalIdentity, Identity, PosixAccount, SlurmRequest
from bridge.policy.calendar import Calendar
from bridge.policy.cedar import SCHEMA_FILE
from bridge.policy.facts import entities_of, request_of
from bridge.policy.problems import Problem
from bridge.policy.question import Question

_MOMENT: Final = datetime(2026, 11, 18, 12, tzinfo=UTC)
_EVERYTHING: Final = Question(
    identity=Identity(
        evidence=EvidenceLevel.SIGNED,
        issuer="https://gitlab.example",
        user_id=1,
        user_login="someone",
        project_id=1,
        project_path="group/project",
        job_project_id=1,
        namespace_id=1,
        pipeline_id=1,
        pipeline_source="push",
        job_id=1,
        job_name="build",
        ref="main",
        ref_type="branch",
        ref_protected=True,
        sha="0" * 40,
        runner_id=1,
        runner_environment="self-hosted",
        environment="production",
        jti="probe",
        token_expires_at=_MOMENT,
        job_timeout_seconds=3600,
        ref_path="refs/heads/main",
        user_access_level="developer",
        ci_config_ref_uri="gitlab.example/group/project//.gitlab-ci.yml@refs/heads/main",
        ci_config_sha="0" * 40,
        environment_protected=True,
        deployment_tier="production",
        user_identities=(ExternalIdentity("ldapmain", "uid=someone"),),
        groups=("group",),
    ),
    account=PosixAccount("someone", 1000, 1000, ("group",), "/home/someone", "/bin/sh"),
    cluster=None,
    request=SlurmRequest("ci", "normal", "group", 1, 1, 1, 1, 1, 1, 1, "feature"),
    at=_MOMENT,
)
"""A question in which nothing is left open."""


def schema_problems(schema: cedarpy.Schema, calendar: Calendar) -> list[Problem]:
    """What keeps the schema from taking a question with every attribute; empty when all is well."""
    result = cedarpy.is_authorized(
        request_of(_EVERYTHING, "cluster", calendar),
        "permit (principal, action, resource);",
        entities_of(_EVERYTHING),
        schema=schema,
    )
    if result.allowed and not result.diagnostics.errors:
        return []
    said = "; ".join(result.diagnostics.errors) or "the request was refused"
    return [Problem(SCHEMA_FILE, None, f"not the schema of this release: {said}")]
