"""The custom-executor contract as a table: what the driver does, and what becomes of the job."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from realm.gitlab.client import JobHandle
from realm.gitlab.local import LocalGitLab
from realm.runner.local import LocalRunner

DRIVER = Path(__file__).parent / "data" / "fake_driver.py"
HANGING = "driver is hanging"

BEFORE_SCRIPT = ["config", "prepare", "prepare_script", "get_sources"]
NORMAL = [*BEFORE_SCRIPT, "build_script", "cleanup_file_variables", "cleanup"]


@dataclass(frozen=True)
class Case:
    """A job, its plan, and what must come of it; `act` is done when the job's log shows the hang."""

    name: str
    plan: dict[str, Any]
    status: str
    calls: list[str]
    exit_code: int | None = None
    reason: str | None = None
    log: str = ""
    act: str = ""
    job: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case(
        "job-timeout",
        {"build_script": "hang"},
        "failed",
        [*BEFORE_SCRIPT, "build_script", "cleanup"],
        None,
        "job_execution_timeout",
        "execution took longer than 7s seconds",
        job={"timeout": "7s", "after_script": ["echo never"]},
    ),
    Case(
        "prepare-hangs",
        {"prepare": "hang"},
        "failed",
        ["config", "prepare", "cleanup"] * 3,
        None,
        "runner_system_failure",
        "signal 15",
    ),
    Case("success", {}, "success", NORMAL, log="Job succeeded"),
    Case("build-failure", {"build_script": "build"}, "failed", NORMAL, 1, "script_failure", "exit status 1"),
    Case("code-three", {"build_script": {"code_file": "3\n"}}, "failed", NORMAL, 3, "script_failure", "exit status 3"),
    Case("code-first-line", {"build_script": {"code_file": "42\nmore"}}, "failed", NORMAL, 42, "script_failure"),
    Case(
        "code-garbage",
        {"build_script": {"code_file": "three"}},
        "failed",
        NORMAL,
        None,
        "runner_system_failure",
        "unknown Custom executor executable exit code",
    ),
    Case("code-blank", {"build_script": {"code_file": ""}}, "failed", NORMAL, None, "runner_system_failure"),
    Case("code-padded", {"build_script": {"code_file": " 3"}}, "failed", NORMAL, None, "runner_system_failure"),
    Case("script-exits-seven", {}, "failed", NORMAL, 7, "script_failure", job={"script": ["exit 7"]}),
    Case(
        "script-system", {"build_script": "system"}, "failed", NORMAL, None, "runner_system_failure", "system failure"
    ),
    Case("script-unknown", {"build_script": 99}, "failed", NORMAL, None, "runner_system_failure", "exit code 99"),
    Case("script-killed", {"build_script": "killed"}, "failed", NORMAL, None, "runner_system_failure", "signal 9"),
    Case("config-build", {"config": "build"}, "failed", ["config", "cleanup"], 1, "script_failure"),
    Case(
        "config-system",
        {"config": "system"},
        "failed",
        ["config", "cleanup"] * 3,
        None,
        "runner_system_failure",
        "Will be retried in 0.05s",
    ),
    Case("config-recovers", {"config": ["system", 77, "ok"]}, "success", ["config", "cleanup"] * 2 + NORMAL),
    Case(
        "config-bad-json",
        {"config": {"print": "{not json"}},
        "failed",
        ["config", "cleanup"] * 3,
        None,
        "runner_system_failure",
        "error while parsing JSON output",
    ),
    Case(
        "config-bad-type",
        {"config": {"print": '{"builds_dir": 7}'}},
        "failed",
        ["config", "cleanup"] * 3,
        None,
        "runner_system_failure",
    ),
    Case(
        "config-silent",
        {"config": {"print": ""}},
        "failed",
        ["config", "cleanup"],
        1,
        "script_failure",
        "the builds_dir is not configured",
    ),
    Case("prepare-build", {"prepare": "build"}, "failed", ["config", "prepare", "cleanup"], 1, "script_failure"),
    Case(
        "prepare-system",
        {"prepare": "system"},
        "failed",
        ["config", "prepare", "cleanup"] * 3,
        None,
        "runner_system_failure",
    ),
    Case(
        "prepare-unknown-then-ok",
        {"prepare": [55, "ok"]},
        "success",
        ["config", "prepare", "cleanup", *NORMAL],
    ),
    Case(
        "environment-fails",
        {"prepare_script": "build"},
        "failed",
        ["config", "prepare", "prepare_script", "cleanup"],
        1,
        "script_failure",
        "prepare environment",
    ),
    Case(
        "sources-fail-twice",
        {"get_sources": ["build", "system", "run"]},
        "success",
        [
            *BEFORE_SCRIPT,
            *["clear_worktree", "get_sources"] * 2,
            "build_script",
            "cleanup_file_variables",
            "cleanup",
        ],
        job={"variables": {"GET_SOURCES_ATTEMPTS": "3"}},
    ),
    Case(
        "sources-fail",
        {"get_sources": "build"},
        "failed",
        [*BEFORE_SCRIPT, "upload_artifacts_on_failure", "cleanup_file_variables", "cleanup"],
        1,
        "script_failure",
        job={"artifacts": {"paths": ["x"], "when": "always"}, "after_script": ["echo never"]},
    ),
    Case(
        "after-script-fails",
        {"after_script": "build"},
        "success",
        [*BEFORE_SCRIPT, "build_script", "after_script", "cleanup_file_variables", "cleanup"],
        log="after_script failed, but job will continue unaffected",
        job={"after_script": ["true"]},
    ),
    Case(
        "failed-job-keeps-what-it-should",
        {"build_script": "build"},
        "failed",
        [
            *BEFORE_SCRIPT,
            "build_script",
            "after_script",
            "upload_artifacts_on_failure",
            "cleanup_file_variables",
            "cleanup",
        ],
        1,
        "script_failure",
        job={"after_script": ["true"], "artifacts": {"paths": ["x"], "when": "on_failure"}},
    ),
    Case(
        "upload-fails",
        {"upload_artifacts_on_success": "build"},
        "failed",
        [*BEFORE_SCRIPT, "build_script", "upload_artifacts_on_success", "cleanup_file_variables", "cleanup"],
        1,
        "script_failure",
        job={"artifacts": {"paths": ["x"]}},
    ),
    Case("cleanup-fails", {"cleanup": "system"}, "success", NORMAL),
    Case(
        "canceled",
        {"build_script": "hang"},
        "canceled",
        [
            *BEFORE_SCRIPT,
            "build_script",
            "after_script",
            "upload_artifacts_on_failure",
            "cleanup_file_variables",
            "cleanup",
        ],
        act="cancel",
        job={"after_script": ["true"], "artifacts": {"paths": ["x"], "when": "always"}},
        log="canceled",
    ),
    Case("canceled-stubborn", {"build_script": "hang-ignoring-term"}, "canceled", NORMAL, act="cancel"),
    Case(
        "script-timeout",
        {"build_script": "hang"},
        "failed",
        [*BEFORE_SCRIPT, "build_script", "after_script", "cleanup_file_variables", "cleanup"],
        1,
        "job_execution_timeout",
        job={"variables": {"RUNNER_SCRIPT_TIMEOUT": "1s"}, "after_script": ["true"]},
    ),
    Case(
        "allowed-failure",
        {"build_script": {"code_file": "3"}},
        "failed",
        NORMAL,
        3,
        "script_failure",
        job={"allow_failure": {"exit_codes": [3]}},
    ),
    Case("no-sources", {}, "success", NORMAL, job={"variables": {"GIT_STRATEGY": "none"}}),
]


@dataclass(frozen=True)
class Ended:
    """How a job ended: its state, its log, and the driver's journal."""

    job: JobHandle
    log: str
    journal: list[dict[str, Any]]

    def call(self, name: str) -> dict[str, Any]:
        """The first journal line of a call or stage."""
        return next(line for line in self.journal if line["name"] == name)


def _ci_file() -> str:
    jobs = {}
    for case in CASES:
        variables = {"PLAN": json.dumps(case.plan), "SHADOW": "from-job", **case.job.get("variables", {})}
        body = {"stage": "test", "script": ["true"], "tags": ["contract"], **case.job, "variables": variables}
        jobs[case.name] = body
    return json.dumps(jobs)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """Every case as a job of one pipeline, run side by side."""
    folder = tmp_path_factory.mktemp("contract")
    secret = {"key": "DEPLOY_KEY", "value": "line one\nline $two", "file": True, "raw": True}
    with LocalGitLab() as gitlab:
        control = gitlab.control
        control.create_user("alice")
        project = control.create_project(
            "hpc/contract", files={".gitlab-ci.yml": _ci_file()}, members={"alice": 40}, variables=[secret]
        )
        runner = LocalRunner(
            gitlab,
            folder,
            DRIVER,
            tag="contract",
            jobs=8,
            environment={"FAKE_ROOT": str(folder), "FAKE_OUTER": "from-runner"},
            custom={"graceful_kill_timeout": 1, "prepare_exec_timeout": 2},
        )
        with runner:
            pipeline = control.start_pipeline(project.id, "alice")
            for case in CASES:
                if case.act == "cancel":
                    job = pipeline.job(case.name)
                    control.wait_for_trace(job.id, HANGING)
                    assert control.cancel_job(job.id).status == "canceling"
            done = control.wait_for_pipeline(pipeline.id, 60)
            yield {job.name: _ended(gitlab, folder, job) for job in done.jobs}


def _ended(gitlab: LocalGitLab, folder: Path, job: JobHandle) -> Ended:
    journal = (folder / f"journal-{job.id}.jsonl").read_text().splitlines()
    return Ended(job, gitlab.control.trace(job.id), [json.loads(line) for line in journal])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_job_ends_as_the_contract_says(case: Case, ended: dict[str, Ended]) -> None:
    found = ended[case.name]
    assert [line["name"] for line in found.journal] == case.calls, found.log
    assert (found.job.status, found.job.exit_code, found.job.failure_reason) == (
        case.status,
        case.exit_code,
        case.reason,
    ), found.log
    assert case.log in found.log


def test_every_call_is_its_own_process_group_with_empty_input(ended: dict[str, Ended]) -> None:
    for line in ended["success"].journal:
        assert line["own_group"]
        assert line["stdin"] == ""


def test_calls_of_one_attempt_share_a_private_folder_that_is_gone_afterwards(ended: dict[str, Ended]) -> None:
    journal = ended["success"].journal
    assert {line["cwd"] for line in journal} == {journal[0]["cwd"]}
    assert {line["cwd_mode"] for line in journal} == {"0o700"}
    assert not Path(journal[0]["cwd"]).exists()


def test_each_prepare_attempt_gets_a_new_folder(ended: dict[str, Ended]) -> None:
    journal = ended["prepare-system"].journal
    assert len({line["cwd"] for line in journal}) == 3


def test_job_response_file_is_private_and_holds_the_job(ended: dict[str, Ended]) -> None:
    for line in ended["success"].journal:
        assert line["response_mode"] == "0o600"
        assert line["response_id"] == ended["success"].job.id


def test_scripts_are_private_files_in_fresh_folders(ended: dict[str, Ended]) -> None:
    for line in ended["success"].journal:
        if line["call"] == "run":
            assert (line["script_mode"], line["script"]) == ("0o700", "script.bash")


def test_config_call_sees_the_contract_variables_and_no_folders_yet(ended: dict[str, Ended]) -> None:
    call = ended["success"].call("config")
    environment = call["environment"]
    assert environment["TMPDIR"] == call["cwd"]
    assert (environment["BUILD_FAILURE_EXIT_CODE"], environment["SYSTEM_FAILURE_EXIT_CODE"]) == ("1", "2")
    assert environment["FAKE_OUTER"] == "from-runner"
    assert "FAKE_SESSION" not in environment
    assert environment["CUSTOM_ENV_CI_PROJECT_DIR"] == ""


def test_job_env_comes_after_the_contract_variables_and_before_the_job_variables(ended: dict[str, Ended]) -> None:
    environment = ended["success"].call("build_script")["environment"]
    assert environment["FAKE_SESSION"] == "from-config"
    assert environment["TMPDIR"] == "/shadowed-by-job-env"
    assert environment["CUSTOM_ENV_SHADOW"] == "from-job"


def test_job_env_never_reaches_a_script(ended: dict[str, Ended]) -> None:
    for line in ended["success"].journal:
        assert "FAKE_SESSION" not in (line["text"] or "")


def test_file_variables_carry_their_content_to_the_driver(ended: dict[str, Ended]) -> None:
    environment = ended["success"].call("prepare")["environment"]
    assert environment["CUSTOM_ENV_DEPLOY_KEY"] == "line one\nline $two"
    assert environment["CUSTOM_ENV_CI_SERVER_TLS_CA_FILE"].startswith("-----BEGIN CERTIFICATE-----")


def test_after_script_is_told_how_the_script_ended(ended: dict[str, Ended]) -> None:
    def status(case: str) -> str:
        return str(ended[case].call("after_script")["environment"]["CUSTOM_ENV_CI_JOB_STATUS"])

    assert status("canceled") == "canceled"
    assert status("after-script-fails") == "success"
    assert status("failed-job-keeps-what-it-should") == "failed"
    assert ended["success"].call("build_script")["environment"]["CUSTOM_ENV_CI_JOB_STATUS"] == "running"


def test_concurrent_jobs_have_their_own_slots(ended: dict[str, Ended]) -> None:
    slots = {found.call("config")["environment"]["CUSTOM_ENV_CI_CONCURRENT_ID"] for found in ended.values()}
    assert slots <= {str(number) for number in range(8)}
    assert len(slots) > 1


def test_driver_name_is_shown(ended: dict[str, Ended]) -> None:
    assert "Using Custom executor with driver fake 1.2.3..." in ended["success"].log


def test_cleanup_output_stays_out_of_the_job_log(ended: dict[str, Ended]) -> None:
    assert "cleanup was here" not in ended["success"].log


def test_allowed_exit_code_leaves_the_failed_job_allowed(ended: dict[str, Ended]) -> None:
    assert ended["allowed-failure"].job.allow_failure
    assert not ended["code-three"].job.allow_failure
