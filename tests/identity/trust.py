"""A verifier that trusts one key of one issuer, and the claims of a genuine token for it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.oidc.verifier import Audience, Verifier
from tests.unit.oidc.issuer_example import AUDIENCE, ISSUER, KID, Keys

MAX_LIFE_SECONDS = 6 * 3600


def verifier_of(key: rsa.RSAPublicKey) -> Verifier:
    """Trusts ``key`` as key-1 of ISSUER."""
    return Verifier([Audience(ISSUER, AUDIENCE, MAX_LIFE_SECONDS)], Keys({(ISSUER, KID): key}))


def genuine_claims(now: datetime, **changes: Any) -> dict[str, Any]:
    """What GitLab writes for a push of alice's at ``now``."""
    issued = int(now.timestamp())
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "project_path:chem/water:ref_type:branch:ref:main",
        "iat": issued,
        "nbf": issued - 5,
        "exp": issued + 3600,
        "jti": "7d6f1c3e-1b1f-4c59-9f2c-0a2f3f6f0b11",
        "namespace_id": "5",
        "project_id": "7",
        "project_path": "chem/water",
        "job_project_id": "7",
        "user_id": "101",
        "user_login": "alice",
        "pipeline_id": "31",
        "pipeline_source": "push",
        "job_id": "301",
        "ref": "main",
        "ref_type": "branch",
        "ref_path": "refs/heads/main",
        "ref_protected": "true",
        "runner_id": 1,
        "runner_environment": "self-hosted",
        "sha": "0123456789abcdef0123456789abcdef01234567",
        "ci_config_ref_uri": "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/main",
        "ci_config_sha": "0123456789abcdef0123456789abcdef01234567",
        "groups_direct": ["chem"],
    }
    return claims | changes
