"""The Slurm job that a Prolog or Epilog call is about, from the environment that slurmd sets."""

from __future__ import annotations

from collections.abc import Mapping


class NoJob(Exception):
    """The environment is not that of Slurm's Prolog or Epilog."""


class SlurmJob:
    """One job on this node.

    22.05 tells Prolog and Epilog the job's comment but not its name (slurm.conf(5)); newer releases may tell both.
    """

    __slots__ = ("comment", "job_id", "name", "uid")

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read SLURM_JOB_ID and SLURM_JOB_UID; raises NoJob."""
        job_id, uid = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_UID", "")
        if not all(text.isascii() and text.isdigit() and len(text) <= 20 for text in (job_id, uid)):
            raise NoJob("SLURM_JOB_ID and SLURM_JOB_UID are not set: call this from Slurm's Prolog or Epilog")
        self.job_id = job_id
        self.uid = int(uid)
        self.name = environ.get("SLURM_JOB_NAME", "")
        self.comment = environ.get("SLURM_JOB_COMMENT", "")

    def looks_like_ours(self, comment_prefix: str) -> bool:
        """Tell whether the job says of itself that the bridge submitted it; decides only what a failure costs."""
        return self.name.startswith("ci-") or self.comment.startswith(comment_prefix)
