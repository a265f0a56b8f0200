"""What a Slurm stage listens to while it follows its job over one connection."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.cluster.node import LoginNode
from bridge.cluster.poller import Watch
from bridge.cluster.slurm import JobState, Slurm
from bridge.errors import BridgeError
from bridge.runs.joblog import JobLog
from bridge.runs.news import News


class Cancel:
    """Put in the queue by ``interrupt``."""


@dataclass(frozen=True, slots=True)
class LogLost:
    """Put in the queue by whoever reads the log."""

    error: BridgeError


Change = JobState | BridgeError | Cancel | LogLost
Changes = News[Change]


@dataclass(slots=True)
class Round:
    """The following of a job over one connection. Nothing of an old one is heard on the new one, but a cancel is."""

    slurm: Slurm
    job_id: int
    log: JobLog
    changes: Changes
    watch: Watch | None = None
    confirm_by: float | None = None
    """Until when Slurm may confirm a cancel, by ``time.monotonic``; None where none was asked for."""


@dataclass(frozen=True, slots=True)
class Source:
    """The poller's view of one connection; jobs on the same one are asked about together."""

    node: LoginNode

    def states(self, job_ids: list[int]) -> dict[int, JobState]:
        """See ``poller.Source``."""
        return Slurm(self.node).states(job_ids)
