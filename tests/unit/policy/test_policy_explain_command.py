"""``ci-bridge policy explain`` and the warnings of ``policy check``."""

import json
import shutil
from pathlib import Path

import pytest
from policy_examples import POLICIES
from typer.testing import CliRunner

from bridge.cli.main import app

CASE = """
[[case]]
issuer = "https://gitlab.realm.test"
user_id = 101
posix.groups = ["chem"]
at = 2026-11-18T12:00:00Z
asked = { partition = "production", nodes = 16 }
"""


def run(*arguments: str, given: str = "") -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["policy", *arguments], input=given, env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


def test_a_case_from_a_file_and_from_standard_input_is_explained_alike(tmp_path: Path) -> None:
    file = tmp_path / "case.toml"
    file.write_text(CASE)
    from_file = run("explain", str(POLICIES), "--case", str(file))
    assert (
        from_file
        == run("explain", str(POLICIES), given=CASE)
        == run("explain", str(POLICIES), "--case", "-", given=CASE)
    )
    code, out, _ = from_file
    assert code == 0
    assert "[policy.forbidden]" in out
    assert "wide-jobs-at-night (guards.cedar:" in out
    assert "    yes context.nodes > 4    (context.nodes is 16)" in out


def test_json_is_the_whole_explanation() -> None:
    code, out, _ = run("explain", str(POLICIES), "--json", given=CASE)
    said = json.loads(out)
    assert (code, said["decision"], said["account"]) == (0, "policy.forbidden", "alice")
    assert [one["policy_id"] for one in said["forbids"]] == ["wide-jobs-at-night"]
    assert said["safe"] == [said["title"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[[case]]",
        CASE + CASE,
        CASE.replace("12:00:00Z", "12:00:00"),
        CASE.replace("nodes", "nods"),
        CASE.replace("101", "true"),
        "\x00",
    ],
)
def test_a_case_that_is_none_is_refused_with_its_place(text: str) -> None:
    code, out, err = run("explain", str(POLICIES), given=text)
    assert (code, out) == (1, "")
    assert "[policy.case_invalid]" in err
    assert "standard input" in err


def test_a_directory_or_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "[policy.invalid]" in run("explain", str(tmp_path), given=CASE)[2]
    assert "[system.error]" in run("explain", str(POLICIES), "--case", str(tmp_path / "none"))[2]


def test_the_check_warns_of_what_has_ended(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    shutil.copytree(POLICIES, directory)
    research = directory / "research.cedar"
    research.write_text(research.read_text().replace("2027-06-30", "2026-01-31"))
    code, _, err = run("check", str(directory))
    assert code == 0
    assert "the permit gpu-course ended with 2026-01-31" in err
