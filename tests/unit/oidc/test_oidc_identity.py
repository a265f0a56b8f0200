"""Signed claims become facts: strings to values, and what nobody signed stays unknown."""

from typing import Any

import pytest
from issuer_example import NOW as MOMENT
from issuer_example import Mint

from bridge.errors import TokenRefused
from bridge.model import EvidenceLevel, ExternalIdentity, Identity, SignedClaims
from bridge.oidc.gitlab import LiveJob
from bridge.oidc.identity import identity
from bridge.oidc.verifier import Verifier

LIVE = LiveJob(
    301, 101, 7, 31, "main", "0" * 40, "build", "test", 1, "push", False, "alice", "https://x/a/b/-/jobs/301"
)


def identity_of(claims: dict[str, Any]) -> Identity:
    """The identity of alice's job with these claims."""
    return identity(SignedClaims(claims), LIVE)


FACTS: list[tuple[dict[str, Any], str, Any]] = [
    ({"ci_config_ref_uri": "g/p//ci.yml@refs/heads/main"}, "ci_config_ref_uri", "g/p//ci.yml@refs/heads/main"),
    ({"ci_config_sha": "a" * 40}, "ci_config_sha", "a" * 40),
    ({"environment_protected": "true"}, "environment_protected", True),
    ({"environment_protected": "false"}, "environment_protected", False),
    ({"deployment_tier": "production"}, "deployment_tier", "production"),
    ({"user_access_level": "developer"}, "user_access_level", "developer"),
    ({"ref_path": "refs/tags/v1"}, "ref_path", "refs/tags/v1"),
    ({"groups_direct": ["chem", "chem/water"]}, "groups", ("chem", "chem/water")),
    ({"groups_direct": []}, "groups", ()),
    (
        {"user_identities": [{"provider": "ldapmain", "extern_uid": "uid=alice"}]},
        "user_identities",
        (ExternalIdentity("ldapmain", "uid=alice"),),
    ),
    ({"user_identities": []}, "user_identities", ()),
]  # fmt: skip


@pytest.mark.parametrize(("signed", "name", "value"), FACTS, ids=str)
def test_a_signed_fact_is_part_of_the_identity(
    verifier: Verifier, mint: Mint, claims: dict[str, Any], signed: dict[str, Any], name: str, value: object
) -> None:
    who = identity(verifier.verify(mint(claims | signed), MOMENT), LIVE)
    assert getattr(who, name) == value
    assert who.evidence is EvidenceLevel.SIGNED


@pytest.mark.threat("T15")
@pytest.mark.parametrize("absent", ["missing", "null"])
@pytest.mark.parametrize(
    ("claim", "name"),
    [
        ("ci_config_ref_uri", "ci_config_ref_uri"),
        ("ci_config_sha", "ci_config_sha"),
        ("environment_protected", "environment_protected"),
        ("deployment_tier", "deployment_tier"),
        ("user_identities", "user_identities"),
        ("groups_direct", "groups"),
        ("user_access_level", "user_access_level"),
        ("ref_path", "ref_path"),
    ],
)
def test_what_is_not_signed_is_unknown_and_never_no(claims: dict[str, Any], claim: str, name: str, absent: str) -> None:
    claims = {key: value for key, value in claims.items() if key != claim} | (
        {} if absent == "missing" else {claim: None}
    )
    assert getattr(identity_of(claims), name) is None


@pytest.mark.threat("T15")
@pytest.mark.parametrize(
    "claim",
    [
        {"environment_protected": True},
        {"environment_protected": "yes"},
        {"groups_direct": "chem"},
        {"groups_direct": [1]},
        {"user_identities": {"provider": "ldap", "extern_uid": "x"}},
        {"user_identities": [{"provider": "ldap"}]},
        {"user_identities": [["ldap", "x"]]},
        {"ci_config_sha": "main"},
        {"ci_config_ref_uri": 7},
        {"deployment_tier": ["production"]},
    ],
    ids=str,
)
def test_a_fact_of_another_type_is_refused(
    verifier: Verifier, mint: Mint, claims: dict[str, Any], claim: dict[str, Any]
) -> None:
    with pytest.raises(TokenRefused) as caught:
        verifier.verify(mint(claims | claim), MOMENT)
    assert caught.value.code == "token.claim_malformed"


@pytest.mark.threat("T14")
@pytest.mark.parametrize("sub", ["project_path:root/secrets:ref_type:branch:ref:main", "user_id:1", "job_project_id:1"])
def test_a_customised_sub_changes_nothing(claims: dict[str, Any], sub: str) -> None:
    assert identity_of(claims | {"sub": sub}) == identity_of(claims)
