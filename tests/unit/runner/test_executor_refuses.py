"""Bad input to the executor: the right exit code, one clear line, no stack trace, no secret, nothing left behind."""

from __future__ import annotations

import base64
import json
import os
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
from contract_bridge import ADMISSION, SESSION, ContractBridge, end, log, note, problem
from executor_call import BUILD, ID_TOKEN, JOB_TOKEN, RESPONSE, SYSTEM, Result, Runner

from runner import wire
from runner.executor import redact
from runner.wire import LOGIN_STAGES, Outcome

JSON = "application/json"
FRAMES = "application/octet-stream"


def one_clear_line(result: Result, code: str) -> None:
    lines = [line for line in result.said.splitlines() if "ci-bridge:" in line and "trying again" not in line]
    assert len(lines) == 1, result.said
    assert f"({code}" in lines[0]
    assert "Traceback" not in result.said
    no_secret(result)


def no_secret(result: Result) -> None:
    for secret in (ID_TOKEN, JOB_TOKEN):
        for form in (secret, base64.b64encode(secret.encode()).decode(), urllib.parse.quote(secret, safe="")):
            assert form not in result.said
    assert SESSION not in result.stderr.decode()


def without(*path: str) -> dict[str, Any]:
    """Give the response without one of its fields."""
    copy: dict[str, Any] = json.loads(json.dumps(RESPONSE))
    at = copy
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return copy


def set_variable(name: str, value: str) -> Callable[[Runner, ContractBridge], None]:
    return lambda runner_host, _bridge: runner_host.environment.update({name: value})


def drop_variable(name: str) -> Callable[[Runner, ContractBridge], None]:
    return lambda runner_host, _bridge: runner_host.environment.pop(name, None)  # type: ignore[return-value]


def respond(response: Any) -> Callable[[Runner, ContractBridge], None]:
    return lambda runner_host, _bridge: runner_host.respond(response)


def answer(operation: str, status: int, kind: str, body: bytes) -> Callable[[Runner, ContractBridge], None]:
    return lambda _runner_host, bridge: bridge.answers.update({operation: [(status, kind, body)]})


def configure(**values: Any) -> Callable[[Runner, ContractBridge], None]:
    return lambda runner_host, bridge: runner_host.configure(**{"bridge_url": bridge.url, **values})


def events(raw: bytes) -> Callable[[Runner, ContractBridge], None]:
    return lambda _runner_host, bridge: setattr(bridge, "raw_events", raw)


def chmod(mode: int) -> Callable[[Runner, ContractBridge], None]:
    return lambda runner_host, _bridge: runner_host.config.chmod(mode)


BUILD_STAGE = "run build_script"
Row = tuple[str, str, Callable[[Runner, ContractBridge], None], int, str]
TABLE: list[Row] = [
    ("unknown stage", "run ../../etc", lambda _r, _b: None, BUILD, "executor.unknown_stage"),
    ("stage with a newline", "run step_a\nb", lambda _r, _b: None, BUILD, "executor.unknown_stage"),
    ("empty stage name", "run step_", lambda _r, _b: None, BUILD, "executor.unknown_stage"),
    ("bad id_token", "config", set_variable("CUSTOM_ENV_CI_BRIDGE_TOKEN", "a\nb"), BUILD, "executor.bad_id_token"),
    (
        "huge id_token",
        "config",
        set_variable("CUSTOM_ENV_CI_BRIDGE_TOKEN", "a" * 20000),
        BUILD,
        "executor.bad_id_token",
    ),
    (
        "parameters not text",
        "config",
        set_variable("CUSTOM_ENV_SCHEDULER_PARAMETERS", os.fsdecode(b"\xff\xfe")),
        BUILD,
        "executor.scheduler_parameters",
    ),
    (
        "parameters too long",
        "config",
        set_variable("CUSTOM_ENV_SCHEDULER_PARAMETERS", "-" * 20000),
        BUILD,
        "executor.scheduler_parameters",
    ),
    ("no response file named", "config", drop_variable("JOB_RESPONSE_FILE"), SYSTEM, "executor.response_file"),
    (
        "response file missing",
        "config",
        set_variable("JOB_RESPONSE_FILE", "/nowhere"),
        SYSTEM,
        "executor.response_file",
    ),
    ("response file a directory", "config", set_variable("JOB_RESPONSE_FILE", "/"), SYSTEM, "executor.response_file"),
    (
        "response file a device",
        "config",
        set_variable("JOB_RESPONSE_FILE", "/dev/zero"),
        SYSTEM,
        "executor.response_file",
    ),
    ("response not JSON", "config", respond(f"{{{JOB_TOKEN}"), SYSTEM, "executor.response_file"),
    ("response a list", "config", respond([1]), SYSTEM, "executor.response_file"),
    ("response nested", "config", respond("[" * 100000), SYSTEM, "executor.response_file"),
    ("response without id", "config", respond(without("id")), SYSTEM, "executor.response_file"),
    ("response without sha", "config", respond(without("git_info", "sha")), SYSTEM, "executor.response_file"),
    ("response without job_info", "config", respond(without("job_info")), SYSTEM, "executor.response_file"),
    ("response with id as text", "config", respond({**RESPONSE, "id": "4711"}), SYSTEM, "executor.response_file"),
    ("response with short token", "config", respond({**RESPONSE, "token": "x"}), SYSTEM, "executor.response_file"),
    (
        "response gone in run",
        BUILD_STAGE,
        set_variable("JOB_RESPONSE_FILE", "/nowhere"),
        SYSTEM,
        "executor.response_file",
    ),
    ("no run", BUILD_STAGE, drop_variable("CI_BRIDGE_RUN"), SYSTEM, "executor.no_run"),
    ("no session in prepare", "prepare", drop_variable("CI_BRIDGE_SESSION"), SYSTEM, "executor.no_run"),
    ("run id with a path", "prepare", set_variable("CI_BRIDGE_RUN", "../../x"), SYSTEM, "executor.no_run"),
    (
        "session with a header",
        "prepare",
        set_variable("CI_BRIDGE_SESSION", "x" * 20 + "\r\nA: b"),
        SYSTEM,
        "executor.no_run",
    ),
    ("bridge down in config", "config", configure(bridge_url="unix:/nowhere/s"), SYSTEM, "executor.bridge_unreachable"),
    (
        "bridge down in prepare",
        "prepare",
        configure(bridge_url="unix:/nowhere/s"),
        SYSTEM,
        "executor.bridge_unreachable",
    ),
    ("bridge down in run", BUILD_STAGE, configure(bridge_url="unix:/nowhere/s"), SYSTEM, "executor.bridge_unreachable"),
    ("name unknown", "config", configure(bridge_url="https://bridge.invalid:1"), SYSTEM, "executor.bridge_unreachable"),
    ("plain http", "config", configure(bridge_url="http://localhost"), SYSTEM, "executor.settings"),
    ("unknown setting", "config", configure(id_tokens="X"), SYSTEM, "executor.settings"),
    ("setting of a wrong type", "config", configure(connect_seconds="10"), SYSTEM, "executor.settings"),
    ("setting out of bounds", "config", configure(connect_seconds=0), SYSTEM, "executor.settings"),
    ("settings writable by all", "config", chmod(0o666), SYSTEM, "executor.settings"),
    ("settings writable by the group", "config", chmod(0o660), SYSTEM, "executor.settings"),
    ("admission garbage", "config", answer("admit", 201, JSON, b"<html>"), SYSTEM, "executor.bad_answer"),
    ("admission a list", "config", answer("admit", 201, JSON, b"[]"), SYSTEM, "executor.bad_answer"),
    ("admission nested", "config", answer("admit", 201, JSON, b"[" * 100000), SYSTEM, "executor.bad_answer"),
    ("admission too long", "config", answer("admit", 201, JSON, b" " * 2**21), SYSTEM, "executor.bad_answer"),
    ("admission without run", "config", answer("admit", 201, JSON, b"{}"), SYSTEM, "executor.bad_answer"),
    (
        "admission with a bad directory",
        "config",
        answer("admit", 201, JSON, json.dumps(ADMISSION | {"builds_dir": "x\n"}).encode()),
        SYSTEM,
        "executor.bad_answer",
    ),
    ("redirect", "config", answer("admit", 302, JSON, b""), SYSTEM, "executor.bad_answer"),
    ("error page", "config", answer("admit", 500, "text/html", b"<h1>"), SYSTEM, "executor.bad_answer"),
    ("refused token", "config", answer("admit", *problem(401, "token.expired")), BUILD, "token.expired"),
    ("refused policy", "config", answer("admit", *problem(403, "account.not_mapped")), BUILD, "account.not_mapped"),
    ("refused request", "config", answer("admit", *problem(422, "slurm.option")), BUILD, "slurm.option"),
    ("conflict", "config", answer("admit", *problem(409, "token.replayed")), BUILD, "token.replayed"),
    ("outage", "config", answer("admit", *problem(503, "kdc.down")), SYSTEM, "kdc.down"),
    ("defect", "config", answer("admit", *problem(500, "bridge.defect")), SYSTEM, "bridge.defect"),
    ("flooded", "config", answer("admit", *problem(429, "bridge.busy")), SYSTEM, "bridge.busy"),
    ("stage refused", BUILD_STAGE, answer("put", *problem(409, "run.ended")), BUILD, "run.ended"),
    ("stage answered with garbage", BUILD_STAGE, answer("put", 202, JSON, b"\0"), SYSTEM, "executor.bad_answer"),
    ("stage outage", BUILD_STAGE, answer("put", *problem(503, "slurm.down")), SYSTEM, "slurm.down"),
    ("events refused", BUILD_STAGE, answer("events_after", *problem(404, "stage.unknown")), BUILD, "stage.unknown"),
    ("events garbage", BUILD_STAGE, events(b"<html>not frames at all</html>"), SYSTEM, "executor.bad_answer"),
    ("event without number", BUILD_STAGE, events(wire.encode({"kind": "log"})), SYSTEM, "executor.bad_answer"),
    ("event of unknown kind", BUILD_STAGE, events(wire.encode({"n": 1, "kind": "x"})), SYSTEM, "executor.bad_answer"),
    ("frame too long", BUILD_STAGE, events(b"\xff" * 8), SYSTEM, "executor.bad_answer"),
    ("end without outcome", BUILD_STAGE, events(wire.encode({"n": 1, "kind": "end"})), SYSTEM, "executor.bad_answer"),
    ("half a frame for ever", BUILD_STAGE, events(b"\0\0\0\x09\0\0"), SYSTEM, "executor.bridge_unreachable"),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_bad_input_gets_the_right_code_and_one_clear_line(
    bridge: ContractBridge, runner_host: Runner, row: Row
) -> None:
    _, call, arrange, code, problem_code = row
    runner_host.admitted()
    arrange(runner_host, bridge)
    verb, _, stage = call.partition(" ")
    result = runner_host.call(*([verb, str(runner_host.script), stage] if verb == "run" else [verb]))
    assert result.code == code, result.said
    one_clear_line(result, problem_code)
    assert result.build_exit_code is None
    if verb == "config":
        assert result.stdout == b""


def test_settings_of_somebody_else_are_refused(bridge: ContractBridge, runner_host: Runner) -> None:
    os.chown(runner_host.config, 12345, 12345)
    result = runner_host.call("config")
    assert result.code == SYSTEM
    one_clear_line(result, "executor.settings")


def test_a_script_that_can_not_be_read_is_an_outage(bridge: ContractBridge, runner_host: Runner) -> None:
    result = runner_host.admitted().call("run", "/nowhere/script", "build_script")
    assert result.code == SYSTEM
    one_clear_line(result, "executor.script")


def test_a_script_that_is_too_long_is_refused_before_it_is_sent(bridge: ContractBridge, runner_host: Runner) -> None:
    runner_host.script.write_bytes(b"#" * (wire.MAX_DATA_BYTES + 1))
    result = runner_host.admitted().run("build_script")
    assert result.code == BUILD
    one_clear_line(result, "executor.script_too_long")
    assert bridge.requests == []


@pytest.mark.parametrize("value", [None, "", "x", "0", "256", "-1", "1e1", "٣"])
@pytest.mark.parametrize("name", ["BUILD_FAILURE_EXIT_CODE", "SYSTEM_FAILURE_EXIT_CODE"])
def test_without_the_runners_exit_codes_nothing_is_done(
    bridge: ContractBridge, runner_host: Runner, name: str, value: str | None
) -> None:
    runner_host.environment.pop(name)
    if value is not None:
        runner_host.environment[name] = value
    result = runner_host.call("config")
    assert result.code == 2
    assert name in result.said
    assert "Traceback" not in result.said
    assert bridge.requests == []


@pytest.mark.parametrize(
    "arguments", [[], ["x"], ["run"], ["run", "a"], ["config", "a"], ["run", "a", "b", "c"], ["--config"]]
)
def test_a_wrong_command_line_shows_the_usage(runner_host: Runner, arguments: list[str]) -> None:
    result = runner_host.call(*arguments)
    assert result.code == 2
    assert "usage:" in result.said
    assert "Traceback" not in result.said


@pytest.mark.threat("T31")
def test_variables_of_the_project_never_say_who_it_is(bridge: ContractBridge, runner_host: Runner) -> None:
    spoofed = {
        "CI_JOB_ID": "1",
        "CI_PROJECT_ID": "1",
        "CI_PIPELINE_ID": "1",
        "CI_PROJECT_PATH": "root/root",
        "CI_COMMIT_REF_NAME": "protected",
        "CI_COMMIT_SHA": "b" * 40,
        "CI_JOB_NAME": "spoofed",
        "CI_JOB_STAGE": "spoofed",
        "CI_JOB_TIMEOUT": "1",
        "GITLAB_USER_ID": "1",
        "GITLAB_USER_LOGIN": "root",
        "CI_JOB_TOKEN": "spoofed-job-token",
        "CI_BRIDGE_RUN": "spoofedrun",
        "CI_BRIDGE_SESSION": "spoofed-session-0123456789",
        "CI_BRIDGE_JOB_TOKEN_ON_NODES": "1",
        "JOB_RESPONSE_FILE": "/etc/passwd",
        "BUILD_FAILURE_EXIT_CODE": "0",
    }
    before = runner_host.call("config")
    runner_host.environment |= {f"CUSTOM_ENV_{name}": value for name, value in spoofed.items()}
    after = runner_host.call("config")
    assert (before.code, after.code) == (0, 0)
    assert bridge.admissions[0] == bridge.admissions[1]
    assert before.stdout == after.stdout
    bridge.add(end(Outcome.OK, 0))
    assert runner_host.admitted().run("build_script").code == 0
    assert JOB_TOKEN not in str(bridge.scripts)


BASIC = base64.b64encode(b"gitlab-ci-token:" + JOB_TOKEN.encode()).decode()


@pytest.mark.threat("T46")
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("stage", [*sorted(LOGIN_STAGES), "build_script", "step_release", "after_script"])
def test_no_script_takes_a_secret_to_a_node(
    bridge: ContractBridge, runner_host: Runner, stage: str, allowed: bool
) -> None:
    quoted = urllib.parse.quote(JOB_TOKEN, safe="")
    runner_host.script.write_text(
        f"export CI_BRIDGE_TOKEN=$'{ID_TOKEN}'\nexport T=$'{JOB_TOKEN}'\ngit clone https://u:{quoted}@h/\n"
        f"curl -H 'Authorization: Basic {BASIC}' -u u:{quoted.lower()}\n"
        f"echo {base64.b64encode(ID_TOKEN.encode()).decode()}\necho end\n"
    )
    bridge.add(end(Outcome.OK, 0))
    runner_host.admitted().environment["CI_BRIDGE_JOB_TOKEN_ON_NODES"] = "1" if allowed else "0"
    result = runner_host.run(stage)
    assert result.code == 0, result.said
    sent = bridge.scripts[0][2].decode()
    assert sent.endswith("echo end\n")
    assert ID_TOKEN not in sent
    assert base64.b64encode(ID_TOKEN.encode()).decode()[:-4] not in sent
    assert "CI_BRIDGE_TOKEN=$'[removed-by-ci-bridge]'" in sent
    kept = allowed or stage in LOGIN_STAGES
    assert (JOB_TOKEN in sent) is kept
    assert (quoted in sent) is kept
    assert (BASIC in sent) is kept
    assert (BASIC[30:50] in sent) is kept


@pytest.mark.threat("T46")
def test_what_the_bridge_says_never_shows_a_secret(bridge: ContractBridge, runner_host: Runner) -> None:
    leak = f"{ID_TOKEN} {JOB_TOKEN} {SESSION}"
    error = {"code": "x.y", "title": leak, "remedy": leak, "reference": leak}
    bridge.add(
        log(b"x\n"), note(leak), note("", section={"start": "a", "title": leak}), end(Outcome.REFUSED, None, error)
    )
    result = runner_host.admitted().run("build_script")
    assert result.code == BUILD
    no_secret(result)
    assert SESSION not in result.said
    bridge.answers["admit"] = [problem(403, "x.y", leak)]
    no_secret(runner_host.call("config"))


def test_a_closed_job_log_cancels_what_nobody_follows(bridge: ContractBridge, runner_host: Runner) -> None:
    process = runner_host.admitted().start("run", str(runner_host.script), "build_script")
    bridge.wait_until(lambda: bridge.afters)
    assert process.stdout is not None
    process.stdout.close()
    bridge.add(log(b"to nobody\n"))
    assert process.wait(30) == SYSTEM
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert bridge.cancels == 1


@pytest.mark.parametrize("before", range(6))
def test_a_secret_is_found_in_base64_at_every_alignment(before: int) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"x" * before + JOB_TOKEN.encode() + b"tail")
        cleaned = redact.remove(b"A " + text + b" B", [JOB_TOKEN])
        assert redact.REMOVED in cleaned
        kept = cleaned.removeprefix(b"A ").removesuffix(b" B").split(redact.REMOVED)
        assert sum(map(len, kept)) <= len(text) - len(JOB_TOKEN)


def test_an_empty_secret_changes_nothing() -> None:
    assert redact.remove(b"abc", [""]) == b"abc"
