"""The ``ci-bridge`` command: help everywhere, policies checked, the audit log verified and shown."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
from bench import CHECKOUT, POLICIES, Broker, refused
from typer.testing import CliRunner, Result

from bridge.cli.main import app
from bridge.cli.output import explained
from bridge.model import RunState


def _commands(command: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [words]
    for name, child in getattr(command, "commands", {}).items():
        found += _commands(child, (*words, name))
    return found


ALL_COMMANDS = _commands(typer.main.get_command(app))


def run(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, list(words))


def failed(result: Result, code: str) -> str:
    """Check that a command said no as commands do; returns what it said."""
    assert result.exit_code == 1, result.output
    assert f"[{code}]" in result.stderr
    assert "What to do: " in result.stderr
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture
def config(broker: Broker, database: str, tmp_path: Path) -> str:
    """A settings file whose database has alice's admission, mallory's refusal, and the end of alice's run."""
    admitted = broker.admission.admit(broker.evidence())
    refused(lambda: broker.admission.admit(broker.evidence(job_id=302, user_id=103)))
    with broker.ledger.begin() as tx:
        tx.update_run_state(admitted.run_id, {RunState.ADMITTED}, RunState.ENDED)
    return _settings(tmp_path, database)


def _settings(directory: Path, database: str) -> str:
    text = (CHECKOUT / "deploy" / "examples" / "bridge.toml").read_text()
    kept = [line for line in text.splitlines() if not line.strip().startswith('url = "sqlite')]
    path = directory / "bridge.toml"
    path.write_text("\n".join(kept).replace("[database]", f'[database]\nurl = "{database}"'))
    return str(path)


def test_there_are_the_commands_that_we_know() -> None:
    assert {" ".join(words) for words in ALL_COMMANDS if words} >= {
        *("serve", "broker", "db upgrade", "audit timeline", "audit verify", "policy check", "policy test"),
    }


@pytest.mark.parametrize("words", ALL_COMMANDS, ids=lambda words: " ".join(words) or "ci-bridge")
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert "Usage: " in result.output
    assert len(click.unstyle(result.output).splitlines()) > 3


def test_the_program_starts_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bridge.cli.main", "--help"], cwd=CHECKOUT, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert b"audit" in done.stdout


def test_the_shipped_policies_pass_their_check_and_their_cases() -> None:
    checked, tested = run("policy", "check", str(POLICIES)), run("policy", "test", str(POLICIES))
    assert (checked.exit_code, tested.exit_code) == (0, 0)
    assert "ok: bundle " in checked.stdout
    assert "FAIL" not in tested.stdout
    said = json.loads(run("policy", "check", str(POLICIES), "--json").stdout)
    assert said["ok"] is True
    assert said["content_hash"] in checked.stdout


def test_a_broken_policy_is_named_with_its_file(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    shutil.copytree(POLICIES, directory)
    (directory / "limits.toml").write_text("[limits.standard]\nmax_nodes = -1\n")
    assert "limits.toml" in failed(run("policy", "check", str(directory)), "policy.invalid")
    failed(run("policy", "test", str(tmp_path / "absent")), "policy.invalid")


def test_a_case_that_comes_out_otherwise_fails_the_test(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    shutil.copytree(POLICIES, directory)
    people = directory / "people.cedar"
    people.write_text(people.read_text().replace("when { context.ref_protected }", "when { !context.ref_protected }"))
    result = run("policy", "test", str(directory))
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    said = json.loads(run("policy", "test", str(directory), "--json").stdout)
    assert said["ok"] is False
    assert any(not case["passed"] for case in said["cases"])


def test_an_untouched_log_verifies(config: str, broker: Broker) -> None:
    result = run("audit", "verify", "--config", config)
    assert (result.exit_code, result.stdout.partition(" entries")[0]) == (0, "ok: 3")
    said = json.loads(run("audit", "verify", "--json", "--config", config).stdout)
    with broker.ledger.read() as view:
        assert said == {"ok": True, "size": 3, "root": view.head().root.hex(), "bad_seq": None, "reason": None}


RENAME = "UPDATE audit SET leaf = CAST(replace(CAST(leaf AS TEXT), '{}', '{}') AS BLOB)"
REPEAT = """INSERT INTO audit
SELECT 3, ts, type, phase, reference, run_id, job_id, leaf, leaf_hash, root FROM audit WHERE seq = 2"""
TAMPERING = {
    "a leaf": (RENAME.format("intent", "denied"), 0),
    "another account": (RENAME.format("alice", "mallo"), 0),
    "an index": ("UPDATE audit SET job_id = 999 WHERE seq = 1", 1),
    "a record that is gone": ("DELETE FROM audit WHERE seq = 1", 1),
    "the tail that is gone": ("DELETE FROM audit WHERE seq = 2", 2),
    "no JSON": ("UPDATE audit SET leaf = x'00' WHERE seq = 2", 2),
    "a record too many": (REPEAT, 3),
}


@pytest.mark.threat("T44")
@pytest.mark.parametrize(("statement", "seq"), TAMPERING.values(), ids=TAMPERING.keys())
def test_a_log_that_was_changed_is_found_out_by_number(config: str, broker: Broker, statement: str, seq: int) -> None:
    with broker.engine.connect() as connection:
        triggers = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all()
        for trigger in triggers:
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        connection.exec_driver_sql(statement)
        connection.commit()
    result = run("audit", "verify", "--config", config)
    said = json.loads(run("audit", "verify", "--json", "--config", config).stdout)

    assert result.exit_code == 1
    assert f"entry {seq}: " in result.stderr
    assert "Traceback" not in result.output
    assert (said["ok"], said["bad_seq"]) == (False, seq)


@pytest.mark.parametrize("option", ["--job", "--run", "--reference"])
def test_a_timeline_tells_the_story(config: str, broker: Broker, option: str) -> None:
    (intent,) = broker.records(phase="intent")
    value = {"--job": "301", "--run": intent["run_id"], "--reference": intent["reference"]}[option]
    lines = run("audit", "timeline", option, value, "--config", config)
    said = json.loads(run("audit", "timeline", option, value, "--json", "--config", config).stdout)

    assert lines.exit_code == 0
    assert [one["phase"] for one in said] == ["intent", "ok"]
    assert {one["actor"]["job_id"] for one in said} == {301}
    assert "as=alice(20001)" in lines.stdout
    assert "tickets=host/login.realm.test@REALM.TEST" in lines.stdout


def test_a_refusal_is_found_by_its_job_and_reference(config: str, broker: Broker) -> None:
    (denied,) = broker.records(phase="denied")
    said = json.loads(run("audit", "timeline", "--reference", denied["reference"], "--json", "--config", config).stdout)
    assert [(one["phase"], one["code"]) for one in said] == [("denied", "account.not_mapped")]
    assert "code=account.not_mapped" in run("audit", "timeline", "--job", "302", "--config", config).stdout


def test_a_timeline_of_nothing_says_so(config: str) -> None:
    failed(run("audit", "timeline", "--config", config), "audit.which")
    failed(run("audit", "timeline", "--job", "999", "--config", config), "audit.nothing")
    assert run("audit", "timeline", "--job", "alice", "--config", config).exit_code == 2


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    config = _settings(tmp_path, f"sqlite:///{tmp_path}/absent.sqlite3")
    failed(run("audit", "verify", "--config", config), "audit.no_database")
    assert not (tmp_path / "absent.sqlite3").exists()


def test_the_database_is_made_and_upgraded_again_without_harm(tmp_path: Path) -> None:
    config = _settings(tmp_path, f"sqlite:///{tmp_path}/new.sqlite3")
    for _ in range(2):
        result = run("db", "upgrade", "--config", config)
        assert result.exit_code == 0, result.output
    assert stat.S_IMODE((tmp_path / "new.sqlite3").stat().st_mode) & 0o007 == 0
    assert run("audit", "verify", "--config", config).stdout.startswith("ok: 0 entries")


@pytest.mark.parametrize("words", [("audit", "verify"), ("db", "upgrade"), ("broker",), ("serve",)])
def test_settings_that_do_not_load_are_said_in_two_lines(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = failed(run(*words, "--config", str(tmp_path / "absent.toml")), "settings.unreadable")
    assert len(said.strip().splitlines()) == 2


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/etc/x.keytab"), ConnectionError()])
def test_an_error_of_the_system_leaves_no_stack_trace(error: OSError, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as exit_code:
        explained(command)()
    said = capsys.readouterr().err
    assert exit_code.value.exit_code == 1
    assert "[system.error]" in said
    assert "Traceback" not in said
    assert (error.filename or "") in said
