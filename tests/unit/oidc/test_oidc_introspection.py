"""A job token alone: what GitLab says of it is taken, what it does not say is never taken for granted."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from https_server import HttpsServer, https_server

from bridge.errors import BridgeError, TokenRefused
from bridge.model import Evidence, EvidenceLevel, Identity, JobFacts
from bridge.oidc.gitlab import GitLabJobCheck, JobChecks
from bridge.oidc.introspection import OWN_CODE, identity

TOKEN = "glcbt-canary-88bb"
SHA = "0123456789abcdef0123456789abcdef01234567"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LONGEST = 6 * 3600


def answer(url: str, **changes: object) -> dict[str, Any]:
    """What GET /job says of alice's push; ``pipeline__source="web"`` changes ``pipeline.source`` and so on."""
    job: dict[str, Any] = {
        "id": 301,
        "status": "running",
        "stage": "test",
        "name": "build",
        "ref": "main",
        "tag": False,
        "user": {"id": 101, "username": "alice", "state": "active"},
        "pipeline": {"id": 31, "project_id": 7, "sha": SHA, "ref": "main", "source": "push"},
        "runner": {"id": 3},
        "web_url": f"{url}/chem/water/-/jobs/301",
    }
    for name, value in changes.items():
        outer, _, inner = name.partition("__")
        if inner:
            job[outer][inner] = value
        else:
            job[outer] = value
    return job


class Site:
    """A GitLab on the wire, and a runner that has a job from it."""

    def __init__(self, server: HttpsServer) -> None:
        self.server = server
        self.url = server.url
        self.jobs = JobChecks({self.url: GitLabJobCheck(self.url, server.ca_file)})
        self.issuers = {self.url: LONGEST}

    def shown(self, facts: dict[str, Any] | None = None, **said: Any) -> Identity:
        """The identity of a job of which GitLab says ``said`` and the runner ``facts``."""
        self.server.body("/api/v4/job", json.dumps(answer(self.url, **said)).encode())
        members: dict[str, Any] = {
            "job_id": 301, "project_id": 7, "pipeline_id": 31, "user_id": 101, "ref": "main", "sha": SHA,
            "job_name": "build", "stage": "test", "project_path": "a/lie", "timeout_seconds": 3600,
            "server_url": self.url,
        }  # fmt: skip
        evidence = Evidence(None, TOKEN, JobFacts(**(members | (facts or {}))), "", None)
        return identity(evidence, self.jobs, self.issuers, NOW)

    def refused(self, facts: dict[str, Any] | None = None, **said: Any) -> BridgeError:
        """The refusal of such a job."""
        with pytest.raises(BridgeError) as caught:
            self.shown(facts, **said)
        return caught.value


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A GitLab whose job tokens are evidence."""
    with https_server(tmp_path) as server:
        yield Site(server)


def test_takes_what_gitlab_says_and_nothing_else(site: Site) -> None:
    who = site.shown()
    assert who == Identity(
        evidence=EvidenceLevel.INTROSPECTED,
        issuer=site.url,
        user_id=101,
        user_login="alice",
        project_id=7,
        project_path="chem/water",
        job_project_id=7,
        namespace_id=None,
        pipeline_id=31,
        pipeline_source="push",
        job_id=301,
        job_name="build",
        ref="main",
        ref_type="branch",
        ref_protected=False,
        sha=SHA,
        runner_id=3,
        runner_environment=None,
        environment=None,
        jti="job:301",
        token_expires_at=NOW + timedelta(hours=1),
        job_timeout_seconds=3600,
    )
    ((_, headers),) = site.server.requests
    assert headers["JOB-TOKEN"] == TOKEN


def test_a_tag_is_a_tag(site: Site) -> None:
    assert site.shown({"ref": "v1"}, ref="v1", tag=True).ref_type == "tag"


@pytest.mark.threat("T12")
@pytest.mark.parametrize("source", sorted(OWN_CODE))
def test_sources_that_run_a_projects_own_code_are_proven(site: Site, source: str) -> None:
    who = site.shown(pipeline__source=source)
    assert (who.pipeline_source, who.project_id, who.job_project_id) == (source, 7, 7)


@pytest.mark.threat("T12")
@pytest.mark.parametrize(
    ("said", "ref"),
    [
        *(
            ({"pipeline__source": source}, "main")
            for source in ("merge_request_event", "external_pull_request_event", "parent_pipeline", "pipeline")
        ),
        ({"pipeline__source": "something_new"}, "main"),
        ({"ref": "refs/merge-requests/4/head"}, "refs/merge-requests/4/head"),
        ({"ref": "refs/merge-requests/4/head", "pipeline__source": "api"}, "refs/merge-requests/4/head"),
        ({"runner": None}, "main"),
    ],
    ids=str,
)  # fmt: skip
def test_a_job_of_unproven_origin_is_refused_with_the_remedy(site: Site, said: dict[str, Any], ref: str) -> None:
    error = site.refused({"ref": ref}, **said)
    assert (error.code, type(error)) == ("job.unproven", TokenRefused)
    assert "id_tokens:" in error.remedy


@pytest.mark.threat("T31")
@pytest.mark.parametrize(
    "facts",
    [{"job_id": 302}, {"project_id": 8}, {"pipeline_id": 32}, {"user_id": 102}, {"ref": "x"}, {"sha": "f" * 40},
     {"job_name": "deploy"}, {"stage": "deploy"}],
    ids=str,
)  # fmt: skip
def test_a_runner_that_says_otherwise_is_refused(site: Site, facts: dict[str, Any]) -> None:
    assert site.refused(facts).code == "job.mismatch"


@pytest.mark.threat("T31")
@pytest.mark.parametrize(
    "server", [None, "", "https://gitlab.elsewhere.test", "{}/", "{}.evil.test", "http://{}", "{}/group", "{} "]
)
def test_only_the_exact_configured_gitlab_is_asked(site: Site, server: str | None) -> None:
    error = site.refused({"server_url": None if server is None else server.format(site.url)})
    assert (error.code, site.server.requests) == ("token.missing", [])
    assert "id_tokens:" in error.remedy


def test_a_gitlab_whose_job_tokens_are_no_evidence_is_not_asked(site: Site) -> None:
    site.issuers = {}
    assert (site.refused().code, site.server.requests) == ("token.missing", [])


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"status": "success"}, "job.not_running"),
        ({"status": "canceling"}, "job.not_running"),
        ({"user__state": "blocked"}, "job.user_blocked"),
        ({"pipeline__source": 7}, "gitlab.unreachable"),
        ({"pipeline__source": "push\n"}, "gitlab.unreachable"),
        ({"tag": "false"}, "gitlab.unreachable"),
    ],
    ids=str,
)
def test_the_job_must_be_whole_and_run(site: Site, said: dict[str, Any], code: str) -> None:
    assert site.refused(**said).code == code


@pytest.mark.threat("T31")
@pytest.mark.parametrize(("said", "life"), [(60, 60), (LONGEST, LONGEST), (30 * 86400, LONGEST), (0, 1), (-5, 1)])
def test_a_runner_can_shorten_a_runs_life_only(site: Site, said: int, life: int) -> None:
    who = site.shown({"timeout_seconds": said})
    assert who.job_timeout_seconds == life
    assert who.token_expires_at == NOW + timedelta(seconds=life)


@pytest.mark.parametrize(
    "web_url",
    ["", "https://[", "{}/a/b/-/jobs/302", "{}/water/-/jobs/301", "{}/chem/../x/-/jobs/301", "{}/a b/c/-/jobs/301"],
)
def test_a_path_that_the_jobs_url_does_not_prove_is_unknown(site: Site, web_url: str) -> None:
    assert site.shown(web_url=web_url.format(site.url)).project_path is None
