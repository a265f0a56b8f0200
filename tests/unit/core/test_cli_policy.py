"""``ci-bridge policy matrix, who-can, what-can, diff`` and what ``check`` finds, as a reviewer runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from bench import POLICIES
from typer.testing import CliRunner, Result

from bridge.cli.main import app


def run(*words: str | Path) -> Result:
    """Run ``ci-bridge policy ...`` in this process."""
    return CliRunner().invoke(app, ["policy", *map(str, words)])


def said(result: Result) -> Any:
    """The JSON document of a command that went well."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A policy directory to change."""
    return Path(shutil.copytree(POLICIES, tmp_path / "policies"))


def change(file: Path, old: str, new: str) -> None:
    """Replace text that is there."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_warnings_do_not_fail_a_check_unless_it_is_strict(copied: Path) -> None:
    result = run("check", copied)
    assert result.exit_code == 0
    assert "warning: accounts.toml: user 105 of https://gitlab.realm.test is linked to root (0)" in result.stderr
    strict = run("check", copied, "--strict")
    assert (strict.exit_code, strict.stdout.split(":")[0]) == (1, "not ok")
    (finding,) = said(run("check", copied, "--json"))["findings"]
    assert (finding["severity"], finding["check"]) == ("warning", "bundle")


def test_errors_fail_a_check_and_have_file_and_line(copied: Path) -> None:
    sudo = (
        '@id("sudo") @limits("small")\n'
        'permit (principal, action == Action::"run_as", resource in PosixGroup::"sudo")\n'
        "when { context.ref_protected };\n"
    )
    (copied / "more.cedar").write_text(f"// why\n{sudo}")
    result = run("check", copied)
    assert result.exit_code == 1
    assert "error: more.cedar:2: 'sudo' is about the group sudo" in click.unstyle(result.stderr)
    as_json = run("check", copied, "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["ok"]) == (1, False)


def test_the_matrix_names_people_accounts_conditions_and_forbids() -> None:
    lines = run("matrix", POLICIES).stdout.splitlines()
    assert "101 at https://gitlab.realm.test: as alice (20001) on pocket" in lines
    assert "    protected refs, partition ci or none named: standard" in lines
    assert "105 at https://gitlab.realm.test: as root (0) on pocket: never (account.privileged)" in lines
    assert any(line.startswith("    no-forks: ") for line in lines)
    document = said(run("matrix", POLICIES, "--json"))
    assert document["complete"] is True
    assert document["decisions"] > 100_000
    assert [one["account"] for one in document["people"] if one["user_id"] == 101] == ["alice", "svc-chem"]


def test_who_can_and_what_can_say_no_by_their_exit_code() -> None:
    assert [one["user_id"] for one in said(run("who-can", POLICIES, "--account", "bob", "--json"))["people"]] == [102]
    assert said(run("what-can", POLICIES, "--user", "104", "--json"))["people"][0]["account"] == "carol"
    for words in (
        ("who-can", POLICIES, "--account", "root"),
        ("what-can", POLICIES, "--user", "105"),
        ("what-can", POLICIES, "--user", "103"),
        ("what-can", POLICIES, "--user", "101", "--issuer", "https://gitlab.example"),
    ):
        assert run(*words).exit_code == 1


def test_a_host_that_does_not_know_the_accounts_says_so() -> None:
    result = run("who-can", POLICIES, "--account", "alice", "--ask-directory")
    assert "warning: this host does not know the account svc-chem" in click.unstyle(result.stderr)
    assert not any("in group chem" in line for line in result.stdout.splitlines())


def test_a_difference_is_said_in_words_and_as_json(copied: Path) -> None:
    assert run("diff", POLICIES, copied).stdout == "no difference: the bundles are the same\n"
    change(copied / "guards.cedar", "unless { context.job_project_id == context.project_id };", "when { false };")
    change(copied / "limits.toml", "max_time_minutes = 120", "max_time_minutes = 240")
    lines = run("diff", POLICIES, copied).stdout.splitlines()
    assert any(line.startswith("! ") and "may now also run: " in line and "forks" in line for line in lines)
    assert "! limits standard: max_time_minutes 120 -> 240" in lines
    document = said(run("diff", POLICIES, copied, "--json"))
    assert (document["empty"], document["complete"]) == (False, True)
    assert {shift["kind"] for shift in document["shifts"]} == {"gained"}
