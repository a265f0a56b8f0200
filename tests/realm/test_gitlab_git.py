"""Git over HTTP with the real git program: who may clone, who may push, and what a push starts."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from realm.gitlab.client import UserHandle
from realm.gitlab.local import LocalGitLab

CI_FILE = json.dumps({"job": {"script": "true"}})


@dataclass(frozen=True)
class Site:
    """A stand-in with one private project."""

    gitlab: LocalGitLab
    people: dict[str, UserHandle]
    project_id: int

    def url(self, name: str, token: str) -> str:
        """The repository's address with credentials."""
        return f"{self.gitlab.url.replace('://', f'://{name}:{token}@')}/hpc/code.git"

    def git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run git with nothing of this machine's configuration."""
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_SSL_CAINFO": str(self.gitlab.files.ca),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        return subprocess.run(
            ["git", *arguments], env=environment, capture_output=True, text=True, check=False, timeout=30
        )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One stand-in for this module."""
    with LocalGitLab() as gitlab:
        people = {name: gitlab.control.create_user(name) for name in ("alice", "guest", "eve")}
        members = {"alice": 30, "guest": 10}
        project = gitlab.control.create_project(
            "hpc/code", files={"a": "1", ".gitlab-ci.yml": CI_FILE}, members=members
        )
        yield Site(gitlab, people, project.id)


@pytest.mark.parametrize(
    ("name", "token", "complaint"),
    [
        ("alice", "wrong", "Authentication failed"),
        ("gitlab-ci-token", "glcbt-guess", "Authentication failed"),
        ("eve", "", "not found"),
    ],
)
def test_clone_is_refused_to_strangers(site: Site, tmp_path: Path, name: str, token: str, complaint: str) -> None:
    secret = token or site.people[name].token
    done = site.git("clone", "--quiet", site.url(name, secret), str(tmp_path / "clone"))
    assert done.returncode != 0
    assert complaint in done.stderr


def test_running_job_may_clone_and_never_push(site: Site, tmp_path: Path) -> None:
    control = site.gitlab.control
    job = control.start_pipeline(site.project_id, "alice").job("job")
    token = control.tokens(job.id).job_token
    url = site.url("gitlab-ci-token", token)
    assert site.git("ls-remote", url).returncode != 0
    runner = control.create_runner()
    from realm.runner.config import CustomConfig, RunnerConfig
    from realm.runner.coordinator import Coordinator

    config = RunnerConfig(
        "t", site.gitlab.url, runner.token, CustomConfig("/bin/true"), tls_ca_file=site.gitlab.files.ca
    )
    coordinator = Coordinator(config)
    assert coordinator.request_job() is not None
    clone = str(tmp_path / "clone")
    assert site.git("clone", "--quiet", url, clone).returncode == 0
    refused = site.git("-C", clone, "push", "origin", "HEAD:refs/heads/sneaky")
    assert refused.returncode != 0
    assert "403" in refused.stderr
    coordinator.update_job(job.id, {"token": token, "state": "success"})
    assert "Authentication failed" in site.git("-C", clone, "fetch", "origin").stderr
    coordinator.close()


def test_push_by_a_developer_starts_a_pipeline_and_ci_skip_does_not(site: Site, tmp_path: Path) -> None:
    clone = str(tmp_path / "clone")
    assert site.git("clone", "--quiet", site.url("alice", site.people["alice"].token), clone).returncode == 0
    identity = ("-c", "user.name=a", "-c", "user.email=a@a.invalid")
    for message, branch in (("one", "feature"), ("two [ci skip]", "quiet")):
        assert site.git("-C", clone, *identity, "commit", "--allow-empty", "-qm", message).returncode == 0
        pushed = site.git("-C", clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
        assert pushed.returncode == 0, pushed.stderr
    started = {(pipeline["ref"], pipeline["source"]) for pipeline in site.gitlab.control.pipelines(site.project_id)}
    assert ("feature", "push") in started
    assert "quiet" not in {ref for ref, _ in started}


def test_push_by_a_guest_is_refused(site: Site, tmp_path: Path) -> None:
    clone = str(tmp_path / "clone")
    url = site.url("guest", site.people["guest"].token)
    assert site.git("clone", "--quiet", url, clone).returncode == 0
    assert "403" in site.git("-C", clone, "push", "origin", "HEAD:refs/heads/guest").stderr


@pytest.mark.parametrize("path", ["hpc/code.git/config", "../hpc/code.git/HEAD", "hpc/code.git/../../etc/passwd"])
def test_only_the_smart_protocol_is_served(site: Site, path: str) -> None:
    done = subprocess.run(
        [
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--path-as-is",
            "--cacert",
            str(site.gitlab.files.ca),
            "-u",
            f"alice:{site.people['alice'].token}",
            f"{site.gitlab.url}/{path}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == "404"
