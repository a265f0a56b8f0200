"""The batch script of every Slurm job: it cleans the environment and runs the stage's script as it is."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest
from executor_call import ROOT

WRAPPER = ROOT / "deploy/bin/ci-bridge-job"


def call(script: Path | str, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [WRAPPER, str(script), *more]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "build_script.sh"
    path.write_text("#SBATCH --nodes=99\nenv -0\nexit 7\n")
    return path


def test_the_scripts_environment_is_clean_and_its_exit_code_the_jobs(script: Path) -> None:
    done = call(
        script,
        LD_PRELOAD="",
        BASH_ENV="/nonexistent",
        KRB5CCNAME="FILE:/other",
        HOME="/elsewhere",
        SECRET="canary",
        SBATCH_EXPORT="ALL",
        SLURM_EXPORT_ENV="NONE",
        SLURM_JOB_ID="4711",
        SLURM_ODD="two\nlines = x",
        CUDA_VISIBLE_DEVICES="0,1",
    )
    got = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    account = pwd.getpwuid(os.getuid())
    assert done.returncode == 7
    assert {name: value for name, value in got.items() if name not in ("PWD", "SHLVL", "_")} == {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell,
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TMPDIR": str(script.parent / "tmp"),
        "SLURM_JOB_ID": "4711",
        "SLURM_ODD": "two\nlines = x",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    assert (script.parent / "tmp").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("cache", ["FILE:/tmp/krb5cc_20001", "KEYRING:persistent:20001", "KCM:"])
def test_the_jobs_tools_are_told_where_its_tickets_are(script: Path, cache: str) -> None:
    done = call(script, cache, KRB5CCNAME="FILE:/other")
    assert f"KRB5CCNAME={cache}" in done.stdout.split("\0")
    assert "FILE:/other" not in done.stdout


def test_a_third_word_is_refused(script: Path) -> None:
    assert call(script, "KCM:", "more").returncode == 64


@pytest.mark.parametrize("kind", ["missing", "link", "directory"])
def test_only_a_file_is_run(script: Path, kind: str) -> None:
    other = script.with_name("other")
    if kind == "link":
        other.symlink_to(script)
    elif kind == "directory":
        other.mkdir()
    done = call(other)
    assert (done.returncode, done.stdout) == (64, "")
