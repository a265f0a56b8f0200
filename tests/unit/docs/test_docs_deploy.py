"""The files in deploy/ that administrators copy are accepted by the programs that read them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import error_codes
import pytest
from cli_commands import COMMANDS

from bridge.policy.clusters import parse_clusters
from bridge.settings import load
from runner.executor import settings as executor_settings
from runner.executor import trusted_toml
from runner.node import settings as node_settings

CHECKOUT = error_codes.CHECKOUT
DEPLOY = CHECKOUT / "deploy"
EXAMPLES = DEPLOY / "examples"
UNITS = sorted((DEPLOY / "systemd").iterdir())
COMMAND = re.compile(r"^Exec\w+=/opt/ci-bridge/\.venv/bin/(ci-bridge .+)$", re.MULTILINE)


def own(example: str, folder: Path) -> str:
    """A copy that only we can write, as the programs demand of their settings."""
    copy = folder / example
    copy.write_bytes((EXAMPLES / example).read_bytes())
    copy.chmod(0o644)
    return str(copy)


def commands() -> list[tuple[str, str]]:
    return [(unit.name, line) for unit in UNITS for line in COMMAND.findall(unit.read_text(encoding="utf-8"))]


def test_the_units_start_both_processes() -> None:
    assert {"ci-bridge broker", "ci-bridge serve --web-only"} <= {line for _, line in commands()}


@pytest.mark.parametrize(("unit", "line"), commands())
def test_a_unit_calls_a_command_that_exists(unit: str, line: str) -> None:
    known = dict(COMMANDS)
    command, *options = re.split(r" (?=--)", line)
    assert command in known, unit
    assert set(options) <= known[command], unit


def test_the_units_name_the_sockets_and_users_of_the_settings() -> None:
    settings = load(EXAMPLES / "bridge.toml")
    socket = (DEPLOY / "systemd" / "ci-bridge-broker.socket").read_text(encoding="utf-8")
    web = (DEPLOY / "systemd" / "ci-bridge.service").read_text(encoding="utf-8")
    assert f"ListenStream={settings.broker.socket}\n" in socket
    assert f"SocketUser={settings.broker.web_user}\n" in socket
    assert "SocketMode=0600\n" in socket
    assert f"\nUser={settings.broker.web_user}\n" in web


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None, "needs Debian's systemd: run scripts/setup"
    program = tmp_path / "ci-bridge"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/ci-bridge/.venv/bin/ci-bridge", str(program))
        text = text.replace("/usr/lib/ci-bridge/ci-bridge-node", str(program))
        (tmp_path / unit.name).write_text(text)
    names = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run(
        [analyze, "verify", "--man=no", *names], capture_output=True, timeout=30, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr.decode(), done.stdout.decode()) == (0, "", "")


def test_the_examples_are_accepted(tmp_path: Path) -> None:
    settings = load(EXAMPLES / "bridge.toml")
    executor = executor_settings.load(own("executor.toml", tmp_path))
    node = node_settings.Settings(own("node.toml", tmp_path))
    assert executor.bridge_url == node.bridge_url == settings.issuers[0].audience
    assert node.bridge_principal == settings.broker.http_service
    assert trusted_toml.read(own("login.toml", tmp_path), {"tool_directories": list})


def test_what_is_commented_out_in_the_example_settings_is_accepted_too(tmp_path: Path) -> None:
    text = (EXAMPLES / "bridge.toml").read_text(encoding="utf-8")
    whole, count = re.subn(r"^# (\w+ = .+)$", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "bridge.toml").write_text(whole)
    settings = load(tmp_path / "bridge.toml")
    assert count == 3
    assert settings.broker.kdcs == ("kdc1.example.org", "kdc2.example.org:88")
    assert settings.broker.self_test_account == "citest"
    assert settings.web.url == settings.issuers[0].audience


def test_the_example_cluster_is_accepted_and_the_kdc_s_script_reads_the_same_of_it() -> None:
    cluster = parse_clusters((EXAMPLES / "clusters.toml").read_text(encoding="utf-8")).choose(None)
    argv = [str(DEPLOY / "kdc" / "setup-delegation"), "--print-targets", str(EXAMPLES / "clusters.toml")]
    printed = subprocess.run(argv, capture_output=True, timeout=10, check=True).stdout.decode().split()
    assert printed == sorted({f"host/{cluster.login_host}", *cluster.login_targets, *cluster.node_targets})


def test_the_example_runner_calls_the_executor() -> None:
    (runner,) = tomllib.loads((EXAMPLES / "gitlab-runner.toml").read_text(encoding="utf-8"))["runners"]
    for call in ("config", "prepare", "run", "cleanup"):
        assert runner["custom"][f"{call}_exec"] == "/usr/lib/ci-bridge/ci-bridge-executor"
        assert runner["custom"][f"{call}_args"] == [call]


def test_the_container_is_made_of_files_that_exist() -> None:
    compose = (CHECKOUT / "docker-compose.yml").read_text(encoding="utf-8")
    dockerfile = re.search(r"dockerfile: (\S+)", compose)
    assert dockerfile
    text = (CHECKOUT / dockerfile[1]).read_text(encoding="utf-8")
    named = re.findall(r"(?:COPY|RUN|opt/ci-bridge/)\s?((?:scripts|deploy)/[A-Za-z/.]+)", text)
    assert {"scripts/packages.txt", "scripts/setup", "deploy/compose/serve"} <= set(named)
    assert [name for name in named if not (CHECKOUT / name).exists()] == []
