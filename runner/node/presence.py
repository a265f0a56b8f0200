"""Asks Slurm which jobs are on this node now: first what runs here, then, about single jobs, the controller.

Never from Prolog or Epilog, which must not call Slurm's commands (slurm.conf(5)). The common case costs the controller
nothing: `scontrol listpids` asks the node's own step daemons.
"""

from __future__ import annotations

from runner.node import tools

ASK_SECONDS = 5.0
ON_A_NODE = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,RESIZING,SIGNALING,STAGE_OUT,STOPPED"
"""States in which a job has its node (squeue(1)); a completing job's epilog may still be at work."""


class Presence:
    """What Slurm says, asked at most once for each job."""

    def __init__(self, node: str, tool_directories: list[str]) -> None:
        """``node`` is the node's name in slurm.conf."""
        self._node = node
        self._tools = tool_directories
        self._steps: set[str] | None = None

    def here(self, job_id: str) -> bool | None:
        """Tell whether a job is on this node; None where Slurm does not say."""
        return True if job_id in self._with_steps() else self._by_controller(job_id)

    def _with_steps(self) -> set[str]:
        if self._steps is None:
            try:
                _, out, _ = tools.run(self._tools, "scontrol", "listpids", seconds=ASK_SECONDS)
            except tools.NoTool:
                out = ""
            rows = (line.split() for line in out.splitlines()[1:])
            self._steps = {row[1] for row in rows if len(row) >= 2 and row[1].isdigit()}
        return self._steps

    def _by_controller(self, job_id: str) -> bool | None:
        wanted = ("--noheader", f"--jobs={job_id}", f"--nodelist={self._node}", f"--states={ON_A_NODE}", "--format=%A")
        try:
            code, out, error = tools.run(self._tools, "squeue", *wanted, seconds=ASK_SECONDS)
        except tools.NoTool:
            return None
        if code != 0:
            return False if "Invalid job id" in error else None
        return job_id in out.split()
