"""A person who pushes projects and waits for their jobs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from realm import Realm
from realm.demo.projects import ci_file, job
from realm.gitlab.client import GitLabControl, JobHandle, JobTokens

DONE = frozenset({"success", "failed", "canceled"})
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|section_(?:start|end):\S+|\r")
_NUMBERS = itertools.count(1)


WAIT_FOR_GO = 'echo "wait""ing for go"; while [ ! -e "$CI_PROJECT_DIR/go" ]; do sleep 0.1; done'
"""A script line that runs until `Person.go`; the log's echo of it is not its output."""


class Person:
    """Pushes projects with one job each, and looks at what becomes of them."""

    def __init__(self, realm: Realm, gitlab: GitLabControl, name: str) -> None:
        self.realm = realm
        self.gitlab = gitlab
        self.name = name
        self._paths: dict[int, str] = {}

    def push(self, *script: str, files: Mapping[str, str] | None = None, **more: Any) -> JobHandle:
        """Start a job with this script in a fresh project; `more` goes into its `.gitlab-ci.yml`."""
        path = f"{self.name}/p{next(_NUMBERS)}"
        tree = ci_file(it=job(*script, **more)) | dict(files or {})
        project = self.gitlab.create_project(path, files=tree, members={self.name: 40}, protected_refs=["main"])
        started = self.gitlab.start_pipeline(project.id, self.name).jobs[0]
        self._paths[started.id] = path
        return started

    def finished(self, started: JobHandle, seconds: float = 60) -> JobHandle:
        """The job once it has ended."""
        return self.gitlab.wait_for_job(started.id, DONE, timeout_seconds=seconds)

    def log(self, started: JobHandle) -> str:
        """The job's log without colours and sections."""
        return _ESCAPES.sub("", self.gitlab.trace(started.id))

    def saw(self, started: JobHandle, text: str, seconds: float = 60) -> str:
        """Wait until the log has `text`."""
        return self.gitlab.wait_for_trace(started.id, text, timeout_seconds=seconds)

    def slurm_id(self, started: JobHandle) -> str:
        """The Slurm job that the log names."""
        found = re.search(r"Slurm job (\d+)", self.saw(started, "Slurm job"))
        assert found
        return found[1]

    def waits(self, started: JobHandle) -> str:
        """Wait until the job's script has come to WAIT_FOR_GO; where its project lies."""
        self.saw(started, "\nwaiting for go")
        found = self.realm.host("login").run(
            ["find", f"/builds/{self.name}", "-name", ".git", "-path", f"*/{self.path(started)}/*"]
        )
        return found.stdout.decode().split()[0].removesuffix("/.git")

    def go(self, started: JobHandle) -> None:
        """Let a job go on that waits."""
        self.realm.host("login").write(f"{self.waits(started)}/go", "", owner=self.name)

    def path(self, started: JobHandle) -> str:
        """The project's path in GitLab."""
        return self._paths[started.id]

    def tokens(self, started: JobHandle) -> JobTokens:
        """The job's secrets, as only GitLab and the runner have them."""
        self.gitlab.wait_for_job(started.id, DONE | {"running"})
        return self.gitlab.tokens(started.id)
