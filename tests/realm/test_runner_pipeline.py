"""Whole pipelines through the driver and real scripts: sources, artifacts, caches, masking, and a faulty server."""

import json
import signal
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from realm.gitlab.client import PipelineHandle, ProjectHandle
from realm.gitlab.local import LocalGitLab
from realm.runner.local import LocalRunner

DRIVER = Path(__file__).parent / "data" / "fake_driver.py"
SECRET = "correct-horse-battery"


@dataclass(frozen=True)
class Site:
    """A stand-in with a runner that serves the tag `loop`, and where that runner's driver works."""

    gitlab: LocalGitLab
    runner: LocalRunner
    folder: Path

    def project(self, path: str, jobs: Mapping[str, object], **options: object) -> ProjectHandle:
        """A project of alice's with this CI file."""
        document = {"default": {"tags": ["loop"]}, **jobs}
        files = {".gitlab-ci.yml": json.dumps(document), "data/input.txt": "forty-two\n"}
        return self.gitlab.control.create_project(path, files=files, members={"alice": 40}, **options)  # type: ignore[arg-type]

    def run(self, path: str, jobs: Mapping[str, object], **options: object) -> PipelineHandle:
        """Create the project, run its pipeline to the end."""
        pipeline = self.gitlab.control.start_pipeline(self.project(path, jobs, **options).id, "alice")
        return self.gitlab.control.wait_for_pipeline(pipeline.id, 30)

    def log(self, pipeline: PipelineHandle, job: str) -> str:
        """A job's log."""
        return self.gitlab.control.trace(pipeline.job(job).id)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One stand-in and one runner for this module."""
    folder = tmp_path_factory.mktemp("pipeline")
    with LocalGitLab() as gitlab:
        gitlab.control.create_user("alice")
        environment = {"FAKE_ROOT": str(folder)}
        with LocalRunner(gitlab, folder, DRIVER, tag="loop", environment=environment) as runner:
            yield Site(gitlab, runner, folder)


def test_sources_are_at_the_commit_and_no_token_is_left_on_disk(site: Site) -> None:
    script = ["cat data/input.txt", "git rev-parse HEAD", "cat .git/config"]
    pipeline = site.run("hpc/sources", {"read": {"script": script}})
    log = site.log(pipeline, "read")
    assert "forty-two" in log
    assert pipeline.sha in log
    assert pipeline.status == "success"
    job = pipeline.job("read")
    token = site.gitlab.control.tokens(job.id).job_token.encode()
    project = site.folder / f"builds-{job.id}" / "hpc" / "sources"
    assert (project / "data" / "input.txt").exists()
    holding = [path for path in project.parent.rglob("*") if path.is_file() and token in path.read_bytes()]
    assert holding == []
    assert not project.with_name("sources.tmp").exists()


def test_job_token_opens_the_repository_while_the_job_runs_and_nothing_afterwards(site: Site) -> None:
    url = site.gitlab.url
    script = ['curl -sS --fail --cacert "$CI_SERVER_TLS_CA_FILE" -H "JOB-TOKEN: $CI_JOB_TOKEN" "$CI_API_V4_URL/job"']
    pipeline = site.run("hpc/ended", {"ask": {"script": script}})
    assert pipeline.status == "success", site.log(pipeline, "ask")
    job = pipeline.job("ask")
    assert f'"id":{job.id}' in site.log(pipeline, "ask")
    token = site.gitlab.control.tokens(job.id).job_token
    context = ssl.create_default_context(cafile=str(site.gitlab.files.ca))
    with httpx2.Client(verify=context, trust_env=False) as http:
        assert http.get(f"{url}/api/v4/job", headers={"JOB-TOKEN": token}).status_code == 401
        answer = http.get(f"{url}/hpc/ended.git/info/refs?service=git-upload-pack", auth=("gitlab-ci-token", token))
        assert answer.status_code == 401


def test_artifacts_go_up_and_come_down_to_the_jobs_that_need_them(site: Site) -> None:
    jobs = {
        "stages": ["one", "two"],
        "make": {
            "stage": "one",
            "script": [
                "mkdir -p out/deep",
                "echo made > out/deep/a.txt",
                "echo no > out/b.log",
                "chmod 750 out/deep/a.txt",
            ],
            "artifacts": {"paths": ["out/"], "exclude": ["out/**/*.log"]},
        },
        "use": {"stage": "two", "script": ["stat -c %a out/deep/a.txt", "cat out/deep/a.txt", "test ! -e out/b.log"]},
        "lone": {"stage": "two", "dependencies": [], "script": ["test ! -e out"]},
    }
    pipeline = site.run("hpc/artifacts", jobs)
    assert pipeline.status == "success", site.log(pipeline, "make") + site.log(pipeline, "use")
    assert "750" in site.log(pipeline, "use")


def test_artifacts_of_a_failed_job_follow_their_when(site: Site) -> None:
    artifacts = {"paths": ["core"], "when": "on_failure"}
    pipeline = site.run("hpc/failing", {"crash": {"script": ["echo dump > core", "exit 3"], "artifacts": artifacts}})
    assert pipeline.job("crash").exit_code == 3
    assert "Uploading artifacts as" in site.log(pipeline, "crash")


def test_cache_comes_back_in_the_next_pipeline(site: Site) -> None:
    script = ["test -e store/seen && echo cache-hit || echo cache-miss", "mkdir -p store", "touch store/seen"]
    jobs: Mapping[str, object] = {"warm": {"script": script, "cache": {"key": "k/1", "paths": ["store/"]}}}
    control = site.gitlab.control
    project = site.project("hpc/cached", jobs)
    for expected in ("cache-miss", "cache-hit"):
        pipeline = control.wait_for_pipeline(control.start_pipeline(project.id, "alice").id, 30)
        assert f"\n{expected}\n" in site.log(pipeline, "warm")


def test_stages_run_in_order_and_a_failure_skips_the_rest(site: Site) -> None:
    jobs = {
        "stages": ["a", "b"],
        "first": {"stage": "a", "script": "exit 1"},
        "second": {"stage": "b", "script": "true"},
        "rescue": {"stage": "b", "script": "true", "when": "on_failure"},
    }
    pipeline = site.run("hpc/order", jobs)
    states = {job.name: job.status for job in pipeline.jobs}
    assert states == {"first": "failed", "second": "skipped", "rescue": "success"}
    assert pipeline.status == "failed"


@pytest.mark.threat("T19")
def test_masked_variables_and_tokens_never_show_in_the_log(site: Site) -> None:
    script = [
        'echo "plain $PASSWORD"',
        'printf "%s" "${PASSWORD:0:9}"; sleep 0.3; echo "${PASSWORD:9}"',
        'echo "$CI_JOB_TOKEN" "$CI_REPOSITORY_URL" "$ID"',
        "env",
    ]
    body = {"script": script, "id_tokens": {"ID": {"aud": "ci-bridge"}}}
    variables = [{"key": "PASSWORD", "value": SECRET, "masked": True}]
    pipeline = site.run("hpc/masked", {"leak": body}, variables=variables)
    tokens = site.gitlab.control.tokens(pipeline.job("leak").id)
    log = site.log(pipeline, "leak")
    assert pipeline.status == "success", log
    assert "plain [MASKED]" in log
    for secret in (SECRET, tokens.job_token, tokens.id_tokens["ID"]):
        assert secret not in log


def test_shell_metacharacters_in_variables_arrive_unchanged(site: Site) -> None:
    value = "a'b\"c `touch pwned` $(touch pwned) \\ ; * é\nsecond line"
    variables = [{"key": "ODD", "value": value, "raw": True}]
    script = ['printf "%s" "$ODD" | sha256sum', "test ! -e pwned"]
    pipeline = site.run("hpc/odd", {"print": {"script": script}}, variables=variables)
    digest = subprocess.run(["sha256sum"], input=value.encode(), capture_output=True, check=True).stdout.decode()[:64]
    assert digest in site.log(pipeline, "print")
    assert pipeline.status == "success"


def test_variables_are_expanded_once_unless_raw(site: Site) -> None:
    variables = [{"key": "RAW", "value": "$BASE/x", "raw": True}]
    job = {"variables": {"BASE": "/b", "FULL": "${BASE}/y", "PRICE": "5$$"}, "script": ['echo "<$RAW><$FULL><$PRICE>"']}
    pipeline = site.run("hpc/expanded", {"show": job}, variables=variables)
    assert "<$BASE/x></b/y><5$>" in site.log(pipeline, "show")


@pytest.mark.parametrize("kind", ["patch_500", "patch_lost", "patch_drop", "put_500", "put_lost", "request_500"])
def test_log_is_complete_when_the_server_fails_in_between(site: Site, kind: str) -> None:
    numbers = "for n in $(seq 1 15); do echo line-$n-; sleep 0.03; done"
    project = site.project(f"hpc/faulty-{kind.replace('_', '-')}", {"count": {"script": [numbers]}})
    site.gitlab.control.misbehave(kind, times=2)
    pipeline = site.gitlab.control.start_pipeline(project.id, "alice")
    done = site.gitlab.control.wait_for_pipeline(pipeline.id, 30)
    site.gitlab.control.behave()
    log = site.log(done, "count")
    assert done.status == "success"
    assert [log.count(f"line-{n}-\n") for n in range(1, 16)] == [1] * 15


def test_log_stops_at_the_output_limit_but_the_job_goes_on(site: Site, tmp_path: Path) -> None:
    control = site.gitlab.control
    script = ["head -c 20000 /dev/zero | tr '\\0' x", "echo end-of-job", "exit 5"]
    ci = json.dumps({"loud": {"script": script, "tags": ["small"]}})
    project = control.create_project("hpc/loud", files={".gitlab-ci.yml": ci}, members={"alice": 40})
    environment = {"FAKE_ROOT": str(tmp_path)}
    with LocalRunner(site.gitlab, tmp_path, DRIVER, tag="small", environment=environment, runner={"output_limit": 8}):
        done = control.wait_for_pipeline(control.start_pipeline(project.id, "alice").id, 30)
    log = control.trace(done.job("loud").id)
    assert "Job's log exceeded limit of 8192 bytes." in log
    assert "end-of-job" not in log
    assert done.job("loud").exit_code == 5


def test_stopping_the_runner_ends_its_job_and_cleans_up(site: Site, tmp_path: Path) -> None:
    control = site.gitlab.control
    ci = json.dumps({"long": {"script": ["true"], "tags": ["stop"], "variables": {"PLAN": '{"build_script": "hang"}'}}})
    project = control.create_project("hpc/stopped", files={".gitlab-ci.yml": ci}, members={"alice": 40})
    runner = LocalRunner(site.gitlab, tmp_path, DRIVER, tag="stop", environment={"FAKE_ROOT": str(tmp_path)})
    with runner:
        job = control.start_pipeline(project.id, "alice").job("long")
        control.wait_for_trace(job.id, "driver is hanging")
        subprocess.run(["kill", f"-{signal.SIGTERM}", str(runner.pid)], check=True)
        assert runner.wait(20) == 0
    ended = control.wait_for_job(job.id)
    assert (ended.status, ended.failure_reason) == ("failed", "runner_system_failure")
    calls = [json.loads(line)["name"] for line in (tmp_path / f"journal-{job.id}.jsonl").read_text().splitlines()]
    assert calls[-2:] == ["build_script", "cleanup"]


def test_runner_log_holds_no_token(site: Site) -> None:
    pipeline = site.run("hpc/quiet", {"run": {"script": "true"}})
    assert site.gitlab.control.tokens(pipeline.job("run").id).job_token not in site.runner.log
    assert "glrt-" not in site.runner.log
    assert "cleanup was here" in site.runner.log
