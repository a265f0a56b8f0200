"""Tells a job's wrapper that its node has no tickets for it, so that the job ends and not the node.

A Prolog that fails drains its node (slurm.conf(5)): an outage of the bridge would take a cluster's nodes away one by
one. So the Prolog leaves a word, and the batch script of every bridge job (``deploy/bin/ci-bridge-job``) looks for it
before it begins with the user's script.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_WORD = 300


def leave(directory: str, job_id: str, reason: str) -> None:
    """Write why the job can't have its tickets, for its user to read; raises OSError."""
    Path(directory).mkdir(mode=0o755, parents=True, exist_ok=True)
    word = "".join(letter if letter.isprintable() else "?" for letter in reason)[:MAX_WORD]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(f"{directory}/{job_id}", flags, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{word}\n")


def remove(directory: str, job_id: str) -> None:
    """Take the word away, if there is one."""
    with contextlib.suppress(OSError):
        Path(f"{directory}/{job_id}").unlink()
