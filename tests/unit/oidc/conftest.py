"""An issuer with keys of its own, tokens by it, and a verifier that trusts it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from issuer_example import AUDIENCE, ISSUER, KID, NOW, Keys, Mint, b64url

from bridge.model import UnverifiedToken
from bridge.oidc.verifier import Audience, Verifier


@pytest.fixture(scope="session")
def signing_key() -> rsa.RSAPrivateKey:
    """The issuer's key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="session")
def other_key() -> rsa.RSAPrivateKey:
    """A key of somebody else."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def claims() -> dict[str, Any]:
    """What GitLab writes for alice's push to main; tests change it as they like."""
    issued = int(NOW.timestamp())
    return {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "project_path:chem/water:ref_type:branch:ref:main",
        "iat": issued,
        "nbf": issued - 5,
        "exp": issued + 3600,
        "jti": "7d6f1c3e-1b1f-4c59-9f2c-0a2f3f6f0b11",
        "namespace_id": "5",
        "namespace_path": "chem",
        "project_id": "7",
        "project_path": "chem/water",
        "job_namespace_id": "5",
        "job_namespace_path": "chem",
        "job_project_id": "7",
        "job_project_path": "chem/water",
        "user_id": "101",
        "user_login": "alice",
        "user_email": "alice@realm.test",
        "user_access_level": "maintainer",
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
        "project_visibility": "private",
        "ci_config_ref_uri": "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/main",
        "ci_config_sha": "0123456789abcdef0123456789abcdef01234567",
    }


@pytest.fixture
def mint(signing_key: rsa.RSAPrivateKey) -> Mint:
    """Sign anything: claims as a mapping, or the payload's very bytes; header members as they come."""

    def make(
        payload: Mapping[str, Any] | bytes,
        *,
        header: Mapping[str, Any] | bytes | None = None,
        key: rsa.RSAPrivateKey = signing_key,
    ) -> UnverifiedToken:
        head = {"alg": "RS256", "typ": "JWT", "kid": KID} if header is None else header
        parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (head, payload)]
        signed = ".".join(map(b64url, parts))
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return UnverifiedToken(f"{signed}.{b64url(signature)}")

    return make


@pytest.fixture
def keys(signing_key: rsa.RSAPrivateKey, other_key: rsa.RSAPrivateKey) -> Keys:
    """The issuer's key, and that of another configured issuer under the same kid."""
    return Keys(
        {(ISSUER, KID): signing_key.public_key(), ("https://other.realm.test", KID): other_key.public_key()},
    )


@pytest.fixture
def verifier(keys: Keys) -> Verifier:
    """A verifier for two issuers, with a cap of six hours."""
    return Verifier([Audience(one, AUDIENCE, 6 * 3600) for one in (ISSUER, "https://other.realm.test")], keys)
