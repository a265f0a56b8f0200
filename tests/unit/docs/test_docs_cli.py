"""Every command and every option stands in docs/cli.md, and no command that does not exist."""

from __future__ import annotations

import re

import error_codes
import pytest
from cli_commands import COMMANDS

from runner.executor import main as executor

PAGE = (error_codes.CHECKOUT / "docs" / "cli.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)


def section(heading: str) -> str:
    return re.split(r"\n##+ ", PAGE.partition(f"\n### {heading}\n")[2])[0]


def test_commands_were_found() -> None:
    assert {"ci-bridge serve", "ci-bridge audit verify", "python -m realm up"} <= dict(COMMANDS).keys()
    assert dict(COMMANDS)["ci-bridge audit timeline"] >= {"--job", "--json", "--config"}


@pytest.mark.parametrize(("command", "options"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_every_command_is_explained_with_its_options(command: str, options: set[str]) -> None:
    assert command in HEADINGS
    assert [option for option in sorted(options) if f"`{option}" not in section(command).replace("[", "`")] == []


def test_no_command_is_explained_that_does_not_exist() -> None:
    launchers = {path.name for path in (error_codes.CHECKOUT / "deploy" / "bin").iterdir()}
    assert set(HEADINGS) == {command for command, _ in COMMANDS} | launchers | {"python -m realm.demo"}


@pytest.mark.parametrize("command", [command for command, _ in COMMANDS if command.startswith("ci-bridge")])
def test_no_option_is_explained_that_does_not_exist(command: str) -> None:
    listed = set(re.findall(r"^\| `(--[a-z-]+)", section(command), re.MULTILINE))
    assert listed == dict(COMMANDS)[command]


def test_every_call_of_the_executor_is_explained() -> None:
    assert [verb for verb in executor._OPERANDS if verb not in section("ci-bridge-executor")] == []


def test_options_of_the_demo_are_explained() -> None:
    source = (error_codes.CHECKOUT / "realm" / "demo" / "__main__.py").read_text(encoding="utf-8")
    options = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))
    assert set(re.findall(r"`(--[a-z-]+)`", section("python -m realm.demo"))) == options
