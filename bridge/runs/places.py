"""Where a run's files are on the cluster; known at admission, before the login agent makes them."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.model import Grant, RunId


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute paths on the file system that login and compute nodes share."""

    builds_dir: str
    cache_dir: str
    private_dir: str
    """0700, the account's own: scripts for Slurm and their logs."""

    @property
    def scratch(self) -> str:
        """Return the run's own temporary directory."""
        return f"{self.private_dir}/tmp"

    def script(self, stage: str) -> str:
        """Return where a Slurm stage's script is put."""
        return f"{self.private_dir}/{stage}.sh"

    def log(self, stage: str) -> str:
        """Return where a Slurm stage's output goes."""
        return f"{self.private_dir}/{stage}.log"


def places(grant: Grant, run_id: RunId) -> Places:
    """Return the places of a run; the login agent's ``workspace`` must come to the same."""
    account, cluster = grant.account.name, grant.cluster
    home = f"{cluster.builds_root}/{account}/{run_id}"
    return Places(f"{home}/builds", f"{cluster.cache_root}/{account}", f"{home}/private")


def login_ccache(grant: Grant) -> str:
    """Return the name of the account's ticket cache on the login node."""
    return grant.cluster.login_ccache.replace("%{uid}", str(grant.account.uid))


def node_ccache(grant: Grant) -> str:
    """Return what finds the account's tickets on a compute node, as KRB5CCNAME for the job's tools.

    ``KCM:20001`` would be one cache of that name to MIT's libkrb5; ``KCM:`` is the caller's collection (sssd-kcm(8)).
    """
    name = grant.cluster.node_ccache.replace("%{uid}", str(grant.account.uid))
    return "KCM:" if name.startswith("KCM:") else name
