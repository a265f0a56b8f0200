"""Runs the few commands of Slurm and Lustre that a node needs, by their full path, briefly, and with no environment."""

from __future__ import annotations

import contextlib
import os
import subprocess

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

KILL_SECONDS = 0.5


class NoTool(Exception):
    """The command is not here, or did not answer in time."""


def run(
    directories: list[str], name: str, *arguments: str, seconds: float, uid: int | None = None, gid: int | None = None
) -> tuple[int, str, str]:
    """Run a command, as the uid if one is given; returns exit code, output and errors; raises NoTool."""
    path = next((found for directory in directories if os.access(found := f"{directory}/{name}", os.X_OK)), None)
    if path is None:
        raise NoTool(f"{name} is in none of tool_directories")
    process = None
    try:
        process = subprocess.Popen(
            [path, *arguments],
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
            start_new_session=True,
        )
        out, error = process.communicate(timeout=seconds)
    except (OSError, subprocess.SubprocessError) as problem:
        if process is not None:
            _give_up(process)
        raise NoTool(f"{name}: {type(problem).__name__}") from problem
    return process.returncode, out.decode(errors="replace"), error.decode(errors="replace")


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """Kill, and wait no longer than a moment: what hangs in the kernel, on a file system that is gone, can't die."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait(KILL_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
