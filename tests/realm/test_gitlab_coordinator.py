"""The coordinator API at its edges: tokens, tags, trace ranges, final states, artifacts and faults."""

import json
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from realm.gitlab.client import ControlError, RunnerHandle
from realm.gitlab.local import LocalGitLab


@dataclass(frozen=True)
class Site:
    """A stand-in with a runner and an HTTP client that trusts it."""

    gitlab: LocalGitLab
    http: httpx2.Client
    runner: RunnerHandle

    def start(self, jobs: dict[str, Any]) -> int:
        """A project with this CI file and a pipeline of alice's; returns the pipeline's id."""
        control = self.gitlab.control
        made = control.create_project(
            f"hpc/p{len(control.requests())}-{id(jobs)}",
            files={".gitlab-ci.yml": json.dumps(jobs)},
            members={"alice": 40},
        )
        return control.start_pipeline(made.id, "alice").id

    def request(self, **info: Any) -> httpx2.Response:
        """Ask for a job."""
        body = {"token": self.runner.token, "info": {"features": info}}
        return self.http.post("/api/v4/jobs/request", json=body)

    def job(self, **body: Any) -> dict[str, Any]:
        """Start a one-job pipeline and take the job."""
        self.start({"job": {"script": "true", **body}})
        return dict(self.request(cancel_gracefully=True).json())

    def patch(self, job: dict[str, Any], start: int, text: str, token: str = "") -> httpx2.Response:
        """Append to the job's log."""
        content = text.encode()
        headers = {"JOB-TOKEN": token or job["token"], "Content-Range": f"{start}-{start + len(content) - 1}"}
        return self.http.patch(f"/api/v4/jobs/{job['id']}/trace", content=content, headers=headers)

    def put(self, job: dict[str, Any], **body: Any) -> httpx2.Response:
        """Update the job."""
        return self.http.put(f"/api/v4/jobs/{job['id']}", json={"token": job["token"], **body})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One stand-in for this module."""
    with LocalGitLab() as gitlab:
        gitlab.control.create_user("alice")
        runner = gitlab.control.create_runner(tags=["hpc", "gpu"])
        context = ssl.create_default_context(cafile=str(gitlab.files.ca))
        with httpx2.Client(base_url=gitlab.url, verify=context, trust_env=False) as http:
            yield Site(gitlab, http, runner)


def test_runner_token_is_verified(site: Site) -> None:
    assert site.http.post("/api/v4/runners/verify", json={"token": site.runner.token}).json()["id"] == site.runner.id
    assert site.http.post("/api/v4/runners/verify", json={"token": "glrt-wrong"}).status_code == 403
    assert site.http.post("/api/v4/jobs/request", json={}).status_code == 403


def test_no_job_is_204_and_a_job_is_given_once(site: Site) -> None:
    assert site.request().status_code == 204
    site.start({"job": {"script": "true"}})
    assert [site.request().status_code, site.request().status_code] == [201, 204]


def test_tags_decide_who_gets_a_job(site: Site) -> None:
    site.start({"job": {"script": "true", "tags": ["hpc", "gpu"]}})
    other = site.gitlab.control.create_runner(tags=["hpc"])
    assert site.http.post("/api/v4/jobs/request", json={"token": other.token}).status_code == 204
    assert site.request().status_code == 201


def test_payload_has_the_parts_that_a_runner_reads(site: Site) -> None:
    job = site.job(after_script=["date"], timeout="10m", image="debian", variables={"A": "b"})
    assert [step["name"] for step in job["steps"]] == ["script", "after_script"]
    assert job["steps"][1] == {
        "name": "after_script",
        "script": ["date"],
        "timeout": 600,
        "when": "always",
        "allow_failure": True,
    }
    assert job["runner_info"]["timeout"] == 600
    assert {"user_id", "scoped_user_id", "project_id", "pipeline_id", "namespace_id"} <= job["job_info"].keys()
    assert job["git_info"]["repo_url"].startswith(f"https://gitlab-ci-token:{job['token']}@localhost:")
    assert {"key": "A", "value": "b", "public": True, "file": False, "masked": False, "raw": False} in job["variables"]
    masked = {item["key"] for item in job["variables"] if item["masked"]}
    assert "CI_JOB_TOKEN" in masked


def test_trace_grows_by_ranges_and_a_gap_is_told(site: Site) -> None:
    job = site.job()
    first = site.patch(job, 0, "hello ")
    assert (first.status_code, first.headers["Range"], first.headers["Job-Status"]) == (202, "0-6", "running")
    for start in (0, 3, 7):
        refused = site.patch(job, start, "x")
        assert (refused.status_code, refused.headers["Range"]) == (416, "0-6")
    assert site.patch(job, 6, "world").headers["Range"] == "0-11"
    assert site.gitlab.control.trace(job["id"]) == "hello world"


def test_trace_needs_the_jobs_own_token_and_a_range(site: Site) -> None:
    job, other = site.job(), site.job()
    assert site.patch(job, 0, "x", other["token"]).status_code == 403
    url = f"/api/v4/jobs/{job['id']}/trace"
    assert site.http.patch(url, content=b"x", headers={"JOB-TOKEN": job["token"]}).status_code == 400
    assert site.http.patch("/api/v4/jobs/99999/trace", content=b"x").status_code == 404


def test_final_state_waits_for_the_whole_log(site: Site) -> None:
    job = site.job()
    site.patch(job, 0, "abc")
    assert site.put(job, state="success", output={"bytesize": 5}).status_code == 202
    assert site.gitlab.control.job(job["id"]).status == "running"
    assert site.put(job, state="success", output={"bytesize": 3}).status_code == 200
    assert site.gitlab.control.job(job["id"]).status == "success"


def test_finished_job_accepts_nothing_more(site: Site) -> None:
    job = site.job()
    assert site.put(job, state="failed", exit_code=3, failure_reason="script_failure").status_code == 200
    late = site.put(job, state="success")
    assert (late.status_code, late.headers["Job-Status"]) == (403, "failed")
    assert site.patch(job, 0, "x").status_code == 403
    ended = site.gitlab.control.job(job["id"])
    assert (ended.status, ended.exit_code, ended.failure_reason) == ("failed", 3, "script_failure")


@pytest.mark.parametrize(("graceful", "told"), [(True, (202, "canceling")), (False, (403, "canceled"))])
def test_cancel_is_told_with_the_next_patch(site: Site, graceful: bool, told: tuple[int, str]) -> None:
    site.start({"job": {"script": "true"}})
    job = site.request(cancel_gracefully=graceful).json()
    site.gitlab.control.cancel_job(job["id"])
    answer = site.patch(job, 0, "x")
    assert (answer.status_code, answer.headers["Job-Status"]) == told


def test_canceling_job_ends_canceled_whatever_the_runner_says(site: Site) -> None:
    job = site.job()
    site.gitlab.control.cancel_job(job["id"])
    site.put(job, state="success")
    assert site.gitlab.control.job(job["id"]).status == "canceled"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain", b"zip"),
        ("multipart/form-data", b"zip"),
        ("multipart/form-data; boundary=b", b"--b\r\nno name\r\n\r\nx\r\n--b--"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ncut',
        ),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--'),
    ],
)
def test_malformed_artifact_upload_is_refused(site: Site, content_type: str, body: bytes) -> None:
    job = site.job()
    headers = {"JOB-TOKEN": job["token"], "Content-Type": content_type}
    answer = site.http.post(f"/api/v4/jobs/{job['id']}/artifacts", content=body, headers=headers)
    assert answer.status_code == 400


def test_artifacts_open_to_dependent_running_jobs_only(site: Site) -> None:
    jobs = {
        "stages": ["a", "b"],
        "make": {"stage": "a", "script": "true", "artifacts": {"paths": ["x"]}},
        "use": {"stage": "b", "script": "true"},
    }
    site.start(jobs)
    made = site.request().json()
    url = f"/api/v4/jobs/{made['id']}/artifacts"
    upload = site.http.post(url, files={"file": ("a.zip", b"PK")}, headers={"JOB-TOKEN": made["token"]})
    assert upload.status_code == 201
    site.put(made, state="success")
    used, stranger = site.request().json(), site.job()
    assert used["dependencies"][0]["artifacts_file"] == {"filename": "a.zip", "size": 2}
    assert site.http.get(url, headers={"JOB-TOKEN": used["token"]}).content == b"PK"
    assert site.http.get(url, headers={"JOB-TOKEN": stranger["token"]}).status_code == 403
    site.put(used, state="success")
    assert site.http.get(url, headers={"JOB-TOKEN": used["token"]}).status_code == 401


def test_faults_are_used_up_and_leave_the_server_well(site: Site) -> None:
    control = site.gitlab.control
    control.misbehave("jwks_500", 2)
    assert [site.http.get("/oauth/discovery/keys").status_code for _ in range(3)] == [500, 500, 200]
    control.misbehave("jwks_redirect", target="https://evil.invalid/keys")
    assert site.http.get("/oauth/discovery/keys").headers["location"] == "https://evil.invalid/keys"
    control.misbehave("jwks_oversize", bytes=3_000_000)
    big = site.http.get("/oauth/discovery/keys")
    assert len(big.content) > 3_000_000
    assert big.json()["keys"]
    control.misbehave("discovery_lies", changes={"issuer": "https://evil.invalid"})
    assert site.http.get("/.well-known/openid-configuration").json()["issuer"] == "https://evil.invalid"
    control.misbehave("jwks_drop")
    with pytest.raises(httpx2.RemoteProtocolError):
        site.http.get("/oauth/discovery/keys")
    control.misbehave("jwks_slow", seconds=5)
    with pytest.raises(httpx2.ReadTimeout):
        site.http.get("/oauth/discovery/keys", timeout=httpx2.Timeout(30, read=0.5))
    assert site.http.get("/oauth/discovery/keys").status_code == 200


def test_unknown_misbehaviour_is_refused(site: Site) -> None:
    with pytest.raises(ControlError, match="unknown misbehaviour"):
        site.gitlab.control.misbehave("kettle_500")


@pytest.mark.threat("T19")
def test_request_log_never_holds_a_token(site: Site) -> None:
    job = site.job()
    site.gitlab.control.forget_requests()
    site.http.get("/api/v4/job", params={"job_token": job["token"]})
    site.http.get("/api/v4/job", headers={"JOB-TOKEN": job["token"]})
    seen = site.gitlab.control.requests()
    assert [(item["path"], item["status"]) for item in seen] == [("/api/v4/job", 200)] * 2
    assert job["token"] not in json.dumps(seen)


def test_control_socket_is_for_its_owner_only(site: Site) -> None:
    path = Path(site.gitlab.files.ca).with_name("control.sock")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert site.http.post("/users", json={"username": "x"}).status_code == 404
