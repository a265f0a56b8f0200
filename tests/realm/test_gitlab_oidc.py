"""OIDC of the stand-in: discovery, keys that rotate, the full claim set, and forgeries on demand."""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
import pytest

from realm.gitlab.client import ProjectHandle, UserHandle
from realm.gitlab.local import LocalGitLab

PLAIN_CLAIMS = {
    *("iss", "sub", "aud", "exp", "nbf", "iat", "jti"),
    *("namespace_id", "namespace_path", "project_id", "project_path"),
    *("job_namespace_id", "job_namespace_path", "job_project_id", "job_project_path"),
    *("user_id", "user_login", "user_email", "user_access_level"),
    *("pipeline_id", "pipeline_source", "job_id", "ref", "ref_type", "ref_path", "ref_protected"),
    *("runner_id", "runner_environment", "sha", "ci_config_ref_uri", "ci_config_sha", "project_visibility"),
}
CI_FILE = {
    "token": {
        "script": "true",
        "timeout": "20m",
        "id_tokens": {"ID": {"aud": "ci-bridge"}, "TWO": {"aud": ["a", "b"]}},
    },
    "deploy": {"stage": "deploy", "script": "true", "environment": "production", "id_tokens": {"ID": {"aud": "x"}}},
}


@dataclass(frozen=True)
class Site:
    """A stand-in with one project of alice's, and an HTTP client that trusts it."""

    gitlab: LocalGitLab
    http: httpx2.Client
    project: ProjectHandle
    alice: UserHandle
    runner_token: str
    runner_id: int

    def take(self) -> dict[str, Any]:
        """Let the runner take the next job."""
        answer = self.http.post("/api/v4/jobs/request", json={"token": self.runner_token})
        assert answer.status_code == 201
        return dict(answer.json())

    def started(self, **options: Any) -> dict[str, Any]:
        """Start a pipeline and take its first job."""
        self.gitlab.control.start_pipeline(self.project.id, "alice", **options)
        return self.take()

    def verify(self, token: str, audience: str = "ci-bridge") -> dict[str, Any]:
        """Verify a token as a careful verifier does."""
        keys = jwt.PyJWKSet.from_dict(self.http.get("/oauth/discovery/keys").json())
        key = keys[jwt.get_unverified_header(token)["kid"]]
        return dict(jwt.decode(token, key, algorithms=["RS256"], audience=audience, issuer=self.gitlab.url))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One stand-in for this module."""
    with LocalGitLab() as gitlab:
        context = ssl.create_default_context(cafile=str(gitlab.files.ca))
        alice = gitlab.control.create_user("alice", id=4242, identities=[("ldapmain", "uid=alice")])
        project = gitlab.control.create_project(
            "hpc/solver",
            files={".gitlab-ci.yml": json.dumps(CI_FILE)},
            members={"alice": 40},
            protected_refs=["main"],
            visibility="internal",
        )
        runner = gitlab.control.create_runner()
        with httpx2.Client(base_url=gitlab.url, verify=context, trust_env=False) as http:
            yield Site(gitlab, http, project, alice, runner.token, runner.id)


def token_of(job: dict[str, Any], name: str = "ID") -> str:
    """An id_token from a job payload."""
    return next(str(item["value"]) for item in job["variables"] if item["key"] == name)


def test_discovery_names_the_issuer_and_its_keys(site: Site) -> None:
    document = site.http.get("/.well-known/openid-configuration").json()
    assert document["issuer"] == site.gitlab.url
    assert document["jwks_uri"] == f"{site.gitlab.url}/oauth/discovery/keys"
    assert document["id_token_signing_alg_values_supported"] == ["RS256"]


def test_id_token_has_exactly_gitlabs_claims_in_gitlabs_types(site: Site) -> None:
    job = site.started()
    claims = site.verify(token_of(job))
    assert claims.keys() == PLAIN_CLAIMS
    texts = PLAIN_CLAIMS - {"exp", "nbf", "iat", "runner_id"}
    assert all(isinstance(claims[name], str) for name in texts)
    assert claims["runner_id"] == site.runner_id
    expected = {
        "user_id": "4242",
        "user_login": "alice",
        "user_access_level": "maintainer",
        "project_id": str(site.project.id),
        "job_project_id": str(site.project.id),
        "job_id": str(job["id"]),
        "ref_protected": "true",
        "ref_path": "refs/heads/main",
        "pipeline_source": "web",
        "runner_environment": "self-hosted",
        "project_visibility": "internal",
        "sha": job["git_info"]["sha"],
    }
    assert {key: claims[key] for key in expected} == expected
    assert claims["ci_config_ref_uri"].endswith("/hpc/solver//.gitlab-ci.yml@refs/heads/main")


def test_id_token_lives_as_long_as_the_job_may_run(site: Site) -> None:
    claims = site.verify(token_of(site.started()))
    assert claims["nbf"] == claims["iat"] - 5
    assert claims["exp"] == claims["iat"] + 20 * 60


def test_audience_is_what_the_file_says(site: Site) -> None:
    job = site.started()
    assert site.verify(token_of(job))["aud"] == "ci-bridge"
    assert site.verify(token_of(job, "TWO"), "b")["aud"] == ["a", "b"]


def test_environment_claims_exist_for_jobs_with_an_environment_only(site: Site) -> None:
    control = site.gitlab.control
    pipeline = control.start_pipeline(site.project.id, "alice")
    payload = site.take()
    site.http.put(f"/api/v4/jobs/{payload['id']}", json={"token": payload["token"], "state": "success"})
    deploy = site.take()
    assert deploy["id"] == pipeline.job("deploy").id
    claims = site.verify(token_of(deploy), "x")
    assert (claims["environment"], claims["deployment_tier"]) == ("production", "production")


def test_user_identities_are_opt_in(site: Site) -> None:
    job = site.started()
    site.gitlab.control.change_user("alice", pass_identities=True)
    claims = site.verify(site.gitlab.control.mint(job["id"]))
    site.gitlab.control.change_user("alice", pass_identities=False)
    assert claims["user_identities"] == [{"provider": "ldapmain", "extern_uid": "uid=alice"}]


@pytest.mark.threat("T7")
def test_fork_pipeline_names_the_fork_and_the_project_that_runs_the_job(site: Site) -> None:
    control = site.gitlab.control
    control.create_user("mallory")
    fork = control.create_project("mallory/solver", fork_of=site.project.id, members={"mallory": 50})
    control.start_fork_pipeline(site.project.id, fork.id, "mallory")
    job = site.take()
    claims = site.verify(token_of(job))
    assert (claims["project_id"], claims["job_project_id"]) == (str(fork.id), str(site.project.id))
    assert (claims["project_path"], claims["job_project_path"]) == ("mallory/solver", "hpc/solver")
    assert (claims["pipeline_source"], claims["ref_protected"]) == ("merge_request_event", "false")
    assert job["job_info"]["project_id"] == site.project.id


def test_rotation_keeps_old_tokens_valid_until_their_key_is_withdrawn(site: Site) -> None:
    old = token_of(site.started())
    fresh_kid = site.gitlab.control.rotate_keys()
    fresh = token_of(site.started())
    assert jwt.get_unverified_header(fresh)["kid"] == fresh_kid
    assert site.verify(old)["jti"] != site.verify(fresh)["jti"]
    old_kid = jwt.get_unverified_header(old)["kid"]
    site.gitlab.control.withdraw_key(old_kid)
    with pytest.raises(KeyError):
        site.verify(old)


def test_kid_is_the_rfc7638_thumbprint(site: Site) -> None:
    import base64
    import hashlib

    for jwk in site.http.get("/oauth/discovery/keys").json()["keys"]:
        core = json.dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"), sort_keys=True)
        digest = hashlib.sha256(core.encode()).digest()
        assert jwk["kid"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert "d" not in jwk


@pytest.mark.parametrize(
    ("defect", "error"),
    [
        ({"overrides": {"exp": 1}}, jwt.ExpiredSignatureError),
        ({"overrides": {"nbf": 9_999_999_999}}, jwt.ImmatureSignatureError),
        ({"overrides": {"iss": "https://evil.invalid"}}, jwt.InvalidIssuerError),
        ({"audience": "somebody-else"}, jwt.InvalidAudienceError),
        ({"remove": ["aud"]}, jwt.MissingRequiredClaimError),
        ({"sign_with": "unknown"}, KeyError),
        ({"sign_with": "unknown", "header": {"kid": "CURRENT"}}, jwt.InvalidSignatureError),
        ({"sign_with": "none"}, jwt.InvalidAlgorithmError),
        ({"sign_with": "hs256"}, jwt.InvalidAlgorithmError),
        ({"sign_with": "empty"}, jwt.InvalidSignatureError),
        ({"header": {"kid": None}}, KeyError),
    ],
)
def test_forgeries_have_the_defect_that_was_asked_for(
    site: Site, defect: dict[str, Any], error: type[Exception]
) -> None:
    job = site.started()
    current = jwt.get_unverified_header(token_of(job))["kid"]
    if defect.get("header", {}).get("kid") == "CURRENT":
        defect = {**defect, "header": {"kid": current}}
    with pytest.raises(error):
        site.verify(site.gitlab.control.mint(job["id"], **defect))


def test_overrides_keep_their_json_type(site: Site) -> None:
    token = site.gitlab.control.mint(site.started()["id"], overrides={"user_id": 7, "ref_protected": True})
    claims = site.verify(token)
    assert claims["user_id"] == 7
    assert claims["ref_protected"] is True
