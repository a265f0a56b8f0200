"""What the bridge can have done on a login node, as one Protocol: the seam between runs and SSH.

Each method is one verb of the login agent (``runner.login``). All paths are absolute. Every method raises Outage
``login.connection_lost`` or ``login.timeout`` where the agent can't be reached, and what the agent says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Hello:
    """Who the agent runs as."""

    user: str
    uid: int
    gid: int
    host: str
    home: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """The directories of a run, each 0700 and the user's own."""

    builds_dir: str
    cache_dir: str
    private_dir: str


@dataclass(frozen=True, slots=True)
class Exit:
    """How a script ended: by exit code, or by a signal; the other one is None."""

    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class Submitted:
    """What sbatch --parsable says."""

    job_id: int
    cluster: str | None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as squeue or sacct shows it, in Slurm's own words."""

    job_id: int
    state: str
    exit_code: int | None
    signal: int | None
    nodes: str
    reason: str
    submit: str


class Running(Protocol):
    """A script that runs on the login node: its output, and then its end."""

    def __iter__(self) -> Iterator[bytes]:
        """Give standard output and error, merged, until the script has ended; raises BridgeError."""
        ...

    @property
    def exit(self) -> Exit:
        """How it ended; only after the iteration."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """End its process group: TERM, then KILL after the grace; returns when it is gone. From any thread."""
        ...


def nobody() -> None:
    """Is called where nobody wants to be."""


class Following(Protocol):
    """A file that is read as it grows."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Give (offset of the first byte, bytes) until ``finish`` and the file's end; raises BridgeError."""
        ...

    def waiting(self, seconds: float) -> Iterator[tuple[int, bytes]]:
        """Give what an iteration would, and stop once nothing has come for ``seconds``; one may go on later."""
        ...

    def finish(self) -> None:
        """Read to the end as it is now, then stop. From any thread."""
        ...

    def abandon(self) -> None:
        """Stop at once, whatever is unread. From any thread."""
        ...


class LoginNode(Protocol):
    """A login node, as one person."""

    def hello(self) -> Hello:
        """Ask who the agent runs as; raises Defect ``login.protocol`` where it speaks another protocol."""
        ...

    def workspace(self, run: str, builds_root: str, cache_root: str) -> Workspace:
        """Make the directories of a run, or find them; raises PolicyRefused ``workspace.foreign``."""
        ...

    def put_tickets(self, ccache: str, data: bytes) -> datetime | None:
        """Put a ticket cache (``FILE:/path``) in place, atomically; gives None.

        A cache in which the person has logged in themselves stays: then it gives until when that is good.
        """
        ...

    def drop_tickets(self, ccache: str) -> bool:
        """Remove a ticket cache, but not a person's own login; tells whether there was one."""
        ...

    def run(self, script: bytes, *, env: Mapping[str, str], cwd: str | None = None) -> Running:
        """Start a bash script in a clean login environment plus ``env``."""
        ...

    def put(self, path: str, data: bytes, mode: int) -> None:
        """Write a file below a private_dir, atomically."""
        ...

    def submit(self, argv: Sequence[str]) -> Submitted:
        """Run ``sbatch --parsable`` with these arguments."""
        ...

    def release(self, job_id: int) -> None:
        """Let a held job go."""
        ...

    def cancel(self, job_id: int, signal: str | None = None) -> None:
        """Cancel a job, or send its steps a signal; a job that is gone is fine."""
        ...

    def find(self, name: str) -> tuple[JobRow, ...]:
        """Give all jobs of exactly this name that squeue or sacct know."""
        ...

    def state(self, job_ids: Sequence[int]) -> tuple[JobRow, ...]:
        """Give the jobs with these ids that squeue or sacct know."""
        ...

    def follow(self, path: str, offset: int, ready: Callable[[], None] = nobody) -> Following:
        """Read a file from ``offset`` on, as it grows; it need not exist yet.

        ``ready`` is called, from any thread and maybe before this returns, whenever there is something to read, or the
        reading has come to its end or failed. It must be quick and not raise.
        """
        ...

    def destroy(self, run: str, builds_root: str, ccache: str | None) -> bool:
        """Remove a run's directories, and a ticket cache if given; tells whether a person's own login was left."""
        ...
