"""The pipeline in docs/policy.md is one: its checks run on the shipped bundle, and its last job sends a token."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import error_codes
import pytest
import yaml

from tests.unit.oidc.https_server import https_server

PAGE = (error_codes.CHECKOUT / "docs" / "policy.md").read_text(encoding="utf-8")
CHAPTER = PAGE.partition("\n## A policy in git\n")[2].partition("\n## ")[0]
BLOCK = textwrap.dedent(CHAPTER[CHAPTER.index("    stages:") : CHAPTER.index("\nWhat it needs")])
PIPELINE: dict[str, Any] = yaml.safe_load(BLOCK)
TOKEN = "cib_" + "a" * 43
MAIN = '$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $CI_COMMIT_REF_PROTECTED == "true"'


def git(where: Path, *words: str) -> None:
    """Run git, whatever the machine's own configuration is."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(where), "GIT_CONFIG_GLOBAL": "/dev/null"}
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.test", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=where, env=environment, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone of the policy's project, with a merge request that opens something."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    policies = origin / "policies"
    origin.mkdir()
    git(origin, "init", "--quiet")
    subprocess.run(["cp", "-r", str(error_codes.CHECKOUT / "policies"), str(policies)], check=True)
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "--message", "as shipped")
    git(tmp_path, "clone", "--quiet", str(origin), str(clone))
    accounts = clone / "policies" / "accounts.toml"
    row = f'\n[[account]]\nissuer = "{_issuer(accounts)}"\nuser_id = 150\naccount = "carol"\nuid = 20099\n'
    accounts.write_text(accounts.read_text() + row)
    git(clone, "commit", "--quiet", "--all", "--message", "carol")
    return clone


def _issuer(accounts: Path) -> str:
    return accounts.read_text().partition('issuer = "')[2].partition('"')[0]


def run_job(name: str, project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a job's script as GitLab Runner's shell does."""
    bin_directory = project.parent / "bin"
    bin_directory.mkdir(exist_ok=True)
    command = bin_directory / "ci-bridge"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m bridge.cli.main "$@"\n')
    command.chmod(0o755)
    environment = {
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
        "HOME": str(project.parent),
        "PYTHONPATH": str(error_codes.CHECKOUT),
        "CI_BUILDS_DIR": str(project.parent),
        "CI_JOB_ID": "7",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_COMMIT_TITLE": 'Let carol in; $(touch injected) "`touch injected`"',
        "CI_COMMIT_SHORT_SHA": "0a1b2c3d",
        **variables,
    }
    lines = "\n".join([*PIPELINE[name]["script"], *PIPELINE[name].get("after_script", ())])
    done = subprocess.run(
        ["/bin/bash", "-e", "-o", "pipefail", "-c", lines],
        cwd=project,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert not (project / "injected").exists()
    return done


def test_merge_requests_are_checked(project: Path) -> None:
    done = run_job("check", project)
    assert "cases as written" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


def test_merge_requests_say_what_they_change(project: Path) -> None:
    done = run_job("diff", project)
    assert done.returncode == 0, done.stderr
    assert "carol" in done.stdout
    assert not (project.parent / "before-7").exists()


@pytest.mark.threat("T40")
def test_no_job_of_a_merge_request_needs_or_names_the_token() -> None:
    for name, job in PIPELINE.items():
        if name != "submit":
            assert "TOKEN" not in str(job)
    assert PIPELINE["submit"]["rules"] == [{"if": MAIN}]
    assert "`CI_BRIDGE_TOKEN_FILE` of the type file, **protected** and **masked**" in CHAPTER


def test_what_is_merged_is_submitted_by_the_token_of_the_file_variable(project: Path, tmp_path: Path) -> None:
    token, client = tmp_path / "token", tmp_path / "client.toml"
    token.write_text(TOKEN + "\n")
    with https_server(tmp_path) as server:
        client.write_text(f'server = "{server.url}"\nca_file = "{server.ca_file}"\n')
        done = run_job("submit", project, CI_BRIDGE_TOKEN_FILE=str(token), CI_BRIDGE_CLIENT=str(client))
        asked = [(path, headers["Authorization"]) for path, headers in server.requests]
    assert asked == [("/v1/admin/bundles/active", f"Bearer {TOKEN}")], done.stderr
    assert done.returncode == 1
    assert TOKEN not in done.stdout + done.stderr
