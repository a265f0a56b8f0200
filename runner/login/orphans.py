"""Keeps hold of processes that leave their script's group, so that none outlives the agent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): processes whose parent ended become children of this one instead of init's."""


def adopt() -> None:
    """Make the agent the parent of what its scripts leave behind."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def end_all(seconds: float) -> None:
    """Kill and reap every process that descends from the agent, for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (children := _children(os.getpid())):
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _children(parent: int) -> list[int]:
    """List the processes with this parent, from /proc/<pid>/stat: the fields after the name are state and parent."""
    found = []
    with os.scandir("/proc") as entries:
        numbers = [entry.name for entry in entries if entry.name.isdigit()]
    for number in numbers:
        with contextlib.suppress(OSError):
            if int(Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(number))
    return found
