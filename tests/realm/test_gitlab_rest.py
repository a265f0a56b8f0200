"""The REST API under python-gitlab, which must work against the stand-in unmodified."""

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import gitlab
import pytest

from realm.gitlab.client import RunnerHandle, UserHandle
from realm.gitlab.local import LocalGitLab

CI_FILE = json.dumps(
    {
        "stages": ["one", "two"],
        "first": {"stage": "one", "script": "true", "artifacts": {"paths": ["x"]}},
        "second": {"stage": "two", "script": "true"},
    }
)


@dataclass(frozen=True)
class Site:
    """A stand-in with people, one project and a runner."""

    server: LocalGitLab
    people: dict[str, UserHandle]
    runner: RunnerHandle

    def client(self, name: str) -> gitlab.Gitlab:
        """python-gitlab as a person."""
        return gitlab.Gitlab(
            self.server.url, private_token=self.people[name].token, ssl_verify=str(self.server.files.ca)
        )

    def job_client(self, token: str) -> gitlab.Gitlab:
        """python-gitlab as a job."""
        return gitlab.Gitlab(self.server.url, job_token=token, ssl_verify=str(self.server.files.ca))

    def take(self) -> dict[str, object]:
        """Let the runner take the next job."""
        with gitlab.Gitlab(self.server.url, ssl_verify=str(self.server.files.ca)) as anonymous:
            body = {"token": self.runner.token, "info": {"features": {"cancel_gracefully": True}}}
            return dict(anonymous.http_post("/jobs/request", post_data=body))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One stand-in for this module."""
    with LocalGitLab() as server:
        control = server.control
        people = {
            "alice": control.create_user("alice", id=1001, identities=[("ldapmain", "uid=alice")]),
            "bob": control.create_user("bob"),
            "eve": control.create_user("eve"),
            "root": control.create_user("root", admin=True),
        }
        control.create_project(
            "hpc/sub/solver",
            files={".gitlab-ci.yml": CI_FILE},
            members={"alice": 40, "bob": 30},
            protected_refs=["main"],
        )
        yield Site(server, people, control.create_runner())


def test_auth_tells_who_the_token_belongs_to(site: Site) -> None:
    with site.client("alice") as client:
        client.auth()
        assert client.user is not None
        assert (client.user.id, client.user.username) == (1001, "alice")
        assert client.version()[0].startswith("18.")


def test_unknown_token_is_refused(site: Site) -> None:
    with (
        gitlab.Gitlab(site.server.url, private_token="glpat-wrong", ssl_verify=str(site.server.files.ca)) as client,
        pytest.raises(gitlab.GitlabAuthenticationError),
    ):
        client.auth()


def test_users_are_found_and_identities_shown_to_administrators_only(site: Site) -> None:
    with site.client("root") as client:
        (alice,) = client.users.list(username="alice")
        assert alice.id == 1001
        assert client.users.get(1001).identities[0]["extern_uid"] == "uid=alice"
    with site.client("bob") as client:
        assert "identities" not in client.users.get(1001).attributes
        assert client.users.list(username="nobody") == []
        with pytest.raises(gitlab.GitlabGetError):
            client.users.get(987654)


def test_project_is_found_by_path_and_number_and_hidden_from_strangers(site: Site) -> None:
    with site.client("alice") as client:
        by_path = client.projects.get("hpc/sub/solver")
        assert client.projects.get(by_path.id).path_with_namespace == "hpc/sub/solver"
    with site.client("eve") as client, pytest.raises(gitlab.GitlabGetError) as hidden:
        client.projects.get("hpc/sub/solver")
    assert hidden.value.response_code == 404


def test_pipeline_is_created_as_the_person_and_its_jobs_listed(site: Site) -> None:
    with site.client("alice") as client:
        project = client.projects.get("hpc/sub/solver")
        pipeline = project.pipelines.create({"ref": "main", "variables": [{"key": "K", "value": "v"}]})
        assert (pipeline.source, pipeline.user["username"]) == ("api", "alice")
        jobs = {job.name: job for job in pipeline.jobs.list()}
        assert (jobs["first"].status, jobs["second"].status) == ("pending", "created")
        assert pipeline.id in {found.id for found in project.pipelines.list(iterator=True)}
        payload = site.take()
        variables = payload["variables"]
        assert isinstance(variables, list)
        assert {"K": "v"}.items() <= {item["key"]: item["value"] for item in variables}.items()
        pipeline.cancel()


@pytest.mark.parametrize(
    ("person", "ref", "complaint"),
    [
        ("bob", "main", "permission"),
        ("alice", "nowhere", "Reference not found"),
        ("alice", "broken", "JSON"),
        ("alice", "stageless", "does not exist"),
    ],
)
def test_pipeline_that_gitlab_would_refuse_is_refused(site: Site, person: str, ref: str, complaint: str) -> None:
    with site.client("root") as root:
        project_id = root.projects.get("hpc/sub/solver").id
    bad = {"broken": "job: {script: [true]", "stageless": json.dumps({"j": {"stage": "nope", "script": "true"}})}
    if ref in bad:
        site.server.control.commit(project_id, {".gitlab-ci.yml": bad[ref]}, branch=ref)
    with site.client(person) as client, pytest.raises(gitlab.GitlabCreateError, match=complaint) as refused:
        client.projects.get(project_id).pipelines.create({"ref": ref})
    assert refused.value.response_code == 400


def test_job_can_be_read_canceled_and_retried(site: Site) -> None:
    with site.client("alice") as client:
        project = client.projects.get("hpc/sub/solver")
        pipeline = project.pipelines.create({"ref": "main"})
        payload = site.take()
        job = project.jobs.get(str(payload["id"]))
        assert job.trace() == b""
        assert job.cancel()["status"] == "canceling"
        with site.job_client(str(payload["token"])) as own:
            assert own.http_get("/job")["status"] == "canceling"  # type: ignore[index]
            own.http_put(f"/jobs/{payload['id']}", post_data={"token": payload["token"], "state": "failed"})
        job.refresh()
        assert job.status == "canceled"
        again = job.retry()
        assert (again["status"], again["name"]) == ("pending", "first")
        pipeline.refresh()
        assert pipeline.status in ("pending", "running")
        pipeline.cancel()


def test_artifacts_and_trace_come_back(site: Site) -> None:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("x", "\r\n--boundary\r\n" * 50)
    with site.client("alice") as client:
        project = client.projects.get("hpc/sub/solver")
        pipeline = project.pipelines.create({"ref": "main"})
        payload = site.take()
        with site.job_client(str(payload["token"])) as own:
            files = {"file": ("artifacts.zip", archive.getvalue(), "application/zip")}
            own.http_post(f"/jobs/{payload['id']}/artifacts", files=files)
        job = project.jobs.get(str(payload["id"]))
        assert job.artifacts() == archive.getvalue()
        assert job.artifacts_file["filename"] == "artifacts.zip"
        pipeline.cancel()


def test_job_token_shows_its_job_but_opens_no_list(site: Site) -> None:
    with site.client("alice") as client:
        project = client.projects.get("hpc/sub/solver")
        pipeline = project.pipelines.create({"ref": "main"})
        payload = site.take()
        with site.job_client(str(payload["token"])) as own:
            shown = own.http_get("/job")
            assert isinstance(shown, dict)
            assert (shown["id"], shown["user"]["id"], shown["status"]) == (payload["id"], 1001, "running")
            assert shown["pipeline"]["project_id"] == project.id
            assert shown["runner"]["id"] == site.runner.id
            with pytest.raises(gitlab.GitlabAuthenticationError):
                own.http_list(f"/projects/{project.id}/jobs")
            own.http_put(f"/jobs/{payload['id']}", post_data={"token": payload["token"], "state": "success"})
            with pytest.raises(gitlab.GitlabAuthenticationError):
                own.http_get("/job")
        pipeline.cancel()


def test_blocked_person_and_their_running_job_are_refused(site: Site) -> None:
    control = site.server.control
    with site.client("alice") as client:
        client.projects.get("hpc/sub/solver").pipelines.create({"ref": "main"})
        payload = site.take()
        control.block_user("alice")
        try:
            with pytest.raises(gitlab.GitlabHttpError) as refused:
                client.http_get("/user")
            with site.job_client(str(payload["token"])) as own, pytest.raises(gitlab.GitlabHttpError) as job_refused:
                own.http_get("/job")
        finally:
            control.change_user("alice", state="active")
    assert (refused.value.response_code, job_refused.value.response_code) == (403, 403)
    control.cancel_job(int(str(payload["id"])))


def test_lists_are_paged(site: Site) -> None:
    with site.client("alice") as client:
        project = client.projects.get("hpc/sub/solver")
        for _ in range(3):
            project.pipelines.create({"ref": "main"}).cancel()
        page = project.pipelines.list(per_page=2, page=1)
        assert len(page) == 2
        everything = project.pipelines.list(per_page=2, iterator=True)
        assert everything.total == len(list(everything))
        ids = [pipeline.id for pipeline in project.pipelines.list(get_all=True, per_page=2)]
        assert ids == sorted(ids, reverse=True)
        assert len(set(ids)) == len(ids) >= 3
