"""The executor's side of GitLab Runner's contract as a table: stage x outcome x signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from contract_bridge import RUN_ID, SESSION, ContractBridge, end, log, note
from executor_call import BUILD, ID_TOKEN, JOB_TOKEN, RESPONSE, ROOT, SYSTEM, Runner
from self_signed import write_certificate

from runner import wire
from runner.executor.admit import DRIVER_VERSION
from runner.wire import LOGIN_STAGES, Outcome

STAGES = ["prepare", *sorted(LOGIN_STAGES), "build_script", "step_script", "step_release", "after_script"]
ERROR = {"code": "slurm.down", "title": "Slurm is down.", "remedy": "Wait.", "reference": "ref-7"}
ENDS: dict[Outcome, tuple[dict[str, Any], bytes]] = {
    Outcome.OK: end(Outcome.OK, 0),
    Outcome.SCRIPT_FAILED: end(Outcome.SCRIPT_FAILED, 3),
    Outcome.REFUSED: end(Outcome.REFUSED, None, ERROR),
    Outcome.OUTAGE: end(Outcome.OUTAGE, None, ERROR),
    Outcome.CANCELLED: end(Outcome.CANCELLED),
}
CODES = {
    Outcome.OK: (0, None),
    Outcome.SCRIPT_FAILED: (BUILD, "3"),
    Outcome.REFUSED: (BUILD, None),
    Outcome.OUTAGE: (SYSTEM, None),
    Outcome.CANCELLED: (BUILD, None),
}


@pytest.mark.parametrize(("stage", "outcome"), list(product(STAGES, Outcome)))
def test_each_stage_and_outcome_has_its_exit_code(
    bridge: ContractBridge, runner_host: Runner, stage: str, outcome: Outcome
) -> None:
    bridge.add(log(b"out\n"), ENDS[outcome])
    result = runner_host.admitted().run(stage)
    assert (result.code, result.build_exit_code) == CODES[outcome], result.said
    assert result.stdout.startswith(b"out\n")
    assert [name for _, name, _ in bridge.scripts] == [stage]
    assert bridge.scripts[0][2] == (b"" if stage == "prepare" else b"echo hello\n")
    if outcome in (Outcome.REFUSED, Outcome.OUTAGE):
        assert all(word in result.said for word in ERROR.values())
        assert len(result.stdout.splitlines()) == 2, "one clear line"


SIGNALS = [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM)]
AFTER_SIGNAL = [
    *product(["prepare", "get_sources", "build_script", "after_script"], SIGNALS, [Outcome.CANCELLED]),
    *product(["build_script"], SIGNALS, [Outcome.OK, Outcome.SCRIPT_FAILED, Outcome.OUTAGE]),
]


@pytest.mark.parametrize(("stage", "signals", "outcome"), AFTER_SIGNAL)
def test_a_signal_cancels_and_waits_for_the_bridges_word(
    bridge: ContractBridge, runner_host: Runner, stage: str, signals: tuple[signal.Signals, ...], outcome: Outcome
) -> None:
    bridge.add(log(b"started\n"))
    bridge.on_cancel = [log(b"last words\n"), ENDS[outcome]]
    process = runner_host.admitted().start(*runner_host.stage_arguments(stage))
    bridge.wait_until(lambda: 1 in bridge.afters)
    for number in signals:
        os.killpg(process.pid, number)
    result = runner_host.result(process)
    assert (result.code, result.build_exit_code) == CODES[outcome], result.said
    assert b"last words\n" in result.stdout
    assert "cancel requested" in result.said
    assert bridge.cancels == 1
    if outcome is Outcome.CANCELLED:
        assert "confirmed" in result.said


def test_a_cancel_that_does_not_reach_the_bridge_at_first_is_told_again(
    bridge: ContractBridge, runner_host: Runner
) -> None:
    bridge.answers["cancel"] = [(503, "text/plain", b"")]
    process = runner_host.admitted().start("prepare")
    bridge.wait_until(lambda: bridge.afters)
    process.send_signal(signal.SIGTERM)
    bridge.wait_until(lambda: "cancel" in [operation for operation, _ in bridge.requests])
    del bridge.answers["cancel"]
    bridge.add(log(b"still here\n"))
    result = runner_host.result(process)
    assert (result.code, bridge.cancels) == (BUILD, 1)


def test_a_signal_before_anything_was_sent_starts_nothing(bridge: ContractBridge, runner_host: Runner) -> None:
    bridge.answers["put"] = [(503, "text/plain", b"")]
    bridge.answers["cancel"] = [(404, "application/problem+json", b'{"code": "stage.unknown"}')]
    runner_host.configure(bridge_url=bridge.url, lost_connection_seconds=10)
    process = runner_host.admitted().start("prepare")
    bridge.wait_until(lambda: bridge.requests)
    process.send_signal(signal.SIGTERM)
    result = runner_host.result(process)
    assert result.code == BUILD
    assert "Cancelled before it started" in result.said


def test_config_prints_the_runners_json_and_tells_who_the_job_runs_as(
    bridge: ContractBridge, runner_host: Runner
) -> None:
    runner_host.environment["CUSTOM_ENV_SCHEDULER_PARAMETERS"] = "--nodes=2 --time=10"
    result = runner_host.call("config")
    assert result.code == 0, result.said
    assert json.loads(result.stdout) == {
        "builds_dir": "/shared/builds/alice/run/builds",
        "cache_dir": "/shared/cache/alice",
        "builds_dir_is_shared": False,
        "hostname": "pocket",
        "driver": {"name": "ci-bridge", "version": DRIVER_VERSION},
        "job_env": {"CI_BRIDGE_RUN": RUN_ID, "CI_BRIDGE_SESSION": SESSION, "CI_BRIDGE_JOB_TOKEN_ON_NODES": "0"},
    }
    told = result.stderr.decode()
    for word in (
        "alice",
        "20001",
        "protected branch",
        "alice@REALM.TEST",
        "22:10",
        "asked for 16 gpus and gets 8",
        "ref-42",
    ):
        assert word in told
    assert bridge.admissions == [
        {
            "id_token": ID_TOKEN,
            "job_token": JOB_TOKEN,
            "facts": {
                "job_id": 4711,
                "project_id": 7,
                "pipeline_id": 99,
                "user_id": 5,
                "ref": "main",
                "sha": "a" * 40,
                "job_name": "test",
                "stage": "test",
                "project_path": "group/code",
                "timeout_seconds": 3600,
                "server_url": "https://gitlab.example",
            },
            "scheduler_parameters": "--nodes=2 --time=10",
            "cluster": None,
        }
    ]


def test_a_job_without_an_id_token_asks_with_its_job_token_and_says_so(
    runner_host: Runner, bridge: ContractBridge
) -> None:
    runner_host.environment.pop("CUSTOM_ENV_CI_BRIDGE_TOKEN")
    result = runner_host.call("config")

    assert result.code == 0, result.said
    (admission,) = bridge.admissions
    assert (admission["id_token"], admission["job_token"]) == (None, JOB_TOKEN)
    assert "no id_token in the variable CI_BRIDGE_TOKEN" in result.said
    assert JOB_TOKEN not in result.said


SERVERS = {
    "https://gitlab-ci-token:t@gitlab.example/group/code.git": "https://gitlab.example",
    "https://gitlab-ci-token:t@gitlab.example:8443/group/code.git": "https://gitlab.example:8443",
    "https://gitlab-ci-token:t@example.org/gitlab/group/code.git": "https://example.org/gitlab",
    "https://gitlab.example/group/code.git": "https://gitlab.example",
    "http://gitlab.example/group/code.git": None,
    "https://gitlab.example/other/code.git": None,
    "https://gitlab.example/group/code": None,
    "git@gitlab.example:group/code.git": None,
    "": None,
}


@pytest.mark.threat("T31")
@pytest.mark.parametrize(("clone", "server"), SERVERS.items())
def test_the_server_is_the_one_that_the_job_is_cloned_from(
    runner_host: Runner, bridge: ContractBridge, clone: str, server: str | None
) -> None:
    runner_host.environment["CUSTOM_ENV_CI_SERVER_URL"] = "https://evil.example"
    runner_host.respond({**RESPONSE, "git_info": {**RESPONSE["git_info"], "repo_url": clone}})
    assert runner_host.call("config").code == 0
    assert bridge.admissions[0]["facts"]["server_url"] == server


@pytest.mark.parametrize("odd", [None, 7, ["https://gitlab.example/group/code.git"], "missing"])
def test_a_response_without_a_clone_url_is_no_error(runner_host: Runner, bridge: ContractBridge, odd: object) -> None:
    git = {name: value for name, value in RESPONSE["git_info"].items() if name != "repo_url"}
    runner_host.respond({**RESPONSE, "git_info": git if odd == "missing" else {**git, "repo_url": odd}})
    assert runner_host.call("config").code == 0
    assert bridge.admissions[0]["facts"]["server_url"] is None


def test_the_driver_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == DRIVER_VERSION


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 7, 60, 5000, 150_000])
def test_a_connection_cut_anywhere_loses_and_doubles_nothing(
    bridge: ContractBridge, runner_host: Runner, cut: int, chunked: bool
) -> None:
    bridge.content_length = not chunked
    lines = [f"line {number} ".encode() + b"x" * 997 + b"\n" for number in range(300)]
    bridge.add(*[log(line) for line in lines], note("nearly done"), end(Outcome.OK, 0))
    bridge.cuts = [cut, cut]
    result = runner_host.admitted().run("build_script")
    assert result.code == 0, result.said
    ours = (b"\x1b", b"ci-bridge:")
    assert [line for line in result.stdout.splitlines(keepends=True) if not line.startswith(ours)] == lines
    assert result.stdout.count(b"nearly done") == 1
    assert bridge.afters == sorted(bridge.afters)
    assert bridge.offsets == [sum(map(len, lines[:after])) for after in bridge.afters]
    assert len(bridge.scripts) == 1
    assert "trying again" in result.said
    assert "answers again" in result.said


def test_events_that_come_twice_are_written_once(bridge: ContractBridge, runner_host: Runner) -> None:
    bridge.forgetful = True
    bridge.add(log(b"first\n"))
    process = runner_host.admitted().start("prepare")
    bridge.wait_until(lambda: 1 in bridge.afters)
    bridge.add(log(b"second\n"), end(Outcome.OK, 0))
    result = runner_host.result(process)
    assert (result.code, result.stdout) == (0, b"first\nsecond\n")


def test_a_stage_is_sent_again_with_the_same_invocation(bridge: ContractBridge, runner_host: Runner) -> None:
    bridge.answers["put"] = [(502, "text/plain", b""), (503, "text/plain", b""), (202, "application/json", b"{}")]
    bridge.add(end(Outcome.OK, 0))
    result = runner_host.admitted().run("build_script")
    assert result.code == 0
    assert len({path for operation, path in bridge.requests if operation == "put"}) == 1


def test_output_is_the_jobs_own_bytes_and_arrives_at_once(bridge: ContractBridge, runner_host: Runner) -> None:
    process = runner_host.admitted().start("prepare")
    assert process.stdout is not None
    for piece in (b"no newline", b"\x00\xff\x1b[31m", b"\n"):
        bridge.add(log(piece))
        assert os.read(process.stdout.fileno(), 4096) == piece
    bridge.add(end(Outcome.OK, 0))
    assert runner_host.result(process).code == 0


def test_notes_and_sections_are_gitlabs_and_harmless(bridge: ContractBridge, runner_host: Runner) -> None:
    bridge.add(
        log(b"half a line"),
        note("Waiting", section={"start": "slurm", "title": "Slurm \x1b[2J job"}),
        note("evil \x1b]0;x\x07 \u202e \u2028 text\nsecond\r line"),
        note("", section={"end": "sl\nurm"}),
        end(Outcome.OK, 0),
    )
    text = runner_host.admitted().run("build_script").stdout.decode()
    lines = text.split("\n")
    assert lines[0] == "half a line"
    assert "section_start:" in lines[1]
    assert ":slurm[collapsed=true]\r\x1b[0K" in lines[1]
    assert any("section_end:" in line and line.endswith(":sl_urm\r\x1b[0K") for line in lines)
    for banned in ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\u2028", "second\r"):
        assert banned not in text


def test_a_script_ended_by_a_signal_leaves_no_exit_code_file(bridge: ContractBridge, runner_host: Runner) -> None:
    bridge.add(end(Outcome.SCRIPT_FAILED, None))
    result = runner_host.admitted().run("build_script")
    assert (result.code, result.build_exit_code) == (BUILD, None)


def test_an_older_runner_without_exit_code_file_works(bridge: ContractBridge, runner_host: Runner) -> None:
    del runner_host.environment["BUILD_EXIT_CODE_FILE"]
    bridge.add(end(Outcome.SCRIPT_FAILED, 3))
    assert runner_host.admitted().run("build_script").code == BUILD


def test_cleanup_without_a_run_asks_nobody(bridge: ContractBridge, runner_host: Runner) -> None:
    result = runner_host.call("cleanup")
    assert (result.code, result.said, bridge.requests) == (0, "", [])


def test_cleanup_may_be_repeated_and_works_after_a_kill(bridge: ContractBridge, runner_host: Runner) -> None:
    process = runner_host.admitted().start("prepare")
    bridge.wait_until(lambda: bridge.afters)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert [runner_host.call("cleanup").code for _ in range(2)] == [0, 0]
    assert bridge.finishes == 2


def test_cleanup_without_a_bridge_is_bounded_and_never_fails(bridge: ContractBridge, runner_host: Runner) -> None:
    runner_host.configure(bridge_url="unix:/nonexistent/web.sock")
    result = runner_host.admitted().call("cleanup")
    assert result.code == 0
    assert b"executor.bridge_unreachable" in result.stderr
    assert result.stdout == b""


def test_config_that_is_cancelled_ends_the_run_it_made(bridge: ContractBridge, runner_host: Runner) -> None:
    admit = bridge._admit
    processes: list[subprocess.Popen[bytes]] = []

    def admit_late(path: str, body: bytes) -> tuple[int, str, bytes]:
        bridge.wait_until(lambda: processes)
        processes[0].send_signal(signal.SIGTERM)
        return admit(path, body)

    bridge._admit = admit_late  # type: ignore[method-assign]
    processes.append(runner_host.start("config"))
    result = runner_host.result(processes[0])
    assert (result.code, result.stdout) == (BUILD, b"")
    assert bridge.finishes == 1


@pytest.mark.parametrize("trusted", [True, False])
def test_tls_is_used_and_the_bridges_certificate_checked(tmp_path: Path, trusted: bool) -> None:
    certificate, other = tmp_path / "tls.pem", tmp_path / "other.pem"
    write_certificate(certificate)
    write_certificate(other)
    bridge = ContractBridge(tmp_path, certificate)
    runner_host = Runner(tmp_path, bridge.url)
    runner_host.configure(bridge_url=bridge.url, ca_file=str(certificate if trusted else other))
    result = runner_host.call("config")
    bridge.close()
    if trusted:
        assert result.code == 0, result.said
    else:
        assert result.code == SYSTEM
        assert "executor.bridge_untrusted" in result.said
        assert bridge.admissions == []


def test_the_fast_path_imports_only_what_it_needs() -> None:
    command = [
        "/usr/bin/python3",
        "-X",
        "importtime",
        "-I",
        "-S",
        str(ROOT / "deploy/bin/ci-bridge-executor"),
        "cleanup",
    ]
    base = ["/usr/bin/python3", "-X", "importtime", "-I", "-S", "-c", "pass"]
    ours, bare = (
        {
            line.rpartition("|")[2].strip()
            for line in subprocess.run(c, capture_output=True, text=True, check=True).stderr.splitlines()
        }
        for c in (command, base)
    )
    assert ours - bare <= {"runner", "runner.executor", "runner.executor.main"}


def test_every_stage_name_is_one_that_the_wire_knows() -> None:
    assert all(wire.is_stage(stage) for stage in STAGES if stage != "prepare")


def test_a_stage_shows_the_job_token_to_a_bridge_that_may_have_been_restarted(
    bridge: ContractBridge, runner_host: Runner
) -> None:
    bridge.add(ENDS[Outcome.OK])
    assert runner_host.admitted().run("build_script").code == 0
    assert bridge.job_tokens == {("PUT", JOB_TOKEN), ("GET", JOB_TOKEN)}
