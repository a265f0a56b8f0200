"""The stand-in's memory: typed tables of frozen records behind one lock."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from realm.gitlab.model import Job, JobStatus, Pipeline, Project, Runner, User
from realm.gitlab.oauth_model import AccessGrant, AccessToken, OAuthApplication


class _Record(Protocol):
    @property
    def id(self) -> int: ...


R = TypeVar("R", bound=_Record)


class Table(Generic[R]):
    """Records of one kind by id; a record is replaced as a whole, so readers never see half a change."""

    def __init__(self, lock: threading.RLock, first_id: int) -> None:
        self._lock = lock
        self._rows: dict[int, R] = {}
        self._next = first_id

    def add(self, make: Callable[[int], R], wanted_id: int | None = None) -> R:
        """Store the record that `make` builds for the next (or the wanted) id."""
        with self._lock:
            number = self._next if wanted_id is None else wanted_id
            if number in self._rows:
                raise ValueError(f"id {number} is taken")
            self._next = max(self._next, number + 1)
            self._rows[number] = make(number)
            return self._rows[number]

    def get(self, number: int) -> R | None:
        """The record with this id, if any."""
        with self._lock:
            return self._rows.get(number)

    def one(self, number: int) -> R:
        """The record with this id; its absence is a KeyError."""
        with self._lock:
            return self._rows[number]

    def find(self, test: Callable[[R], bool]) -> R | None:
        """The first stored record that passes the test."""
        with self._lock:
            return next((row for row in self._rows.values() if test(row)), None)

    def select(self, test: Callable[[R], bool] = lambda _: True) -> list[R]:
        """All records that pass the test, by rising id."""
        with self._lock:
            return [self._rows[number] for number in sorted(self._rows) if test(self._rows[number])]

    def update(self, number: int, **changes: Any) -> R:
        """Replace fields of one record and return the new one."""
        with self._lock:
            self._rows[number] = replace(self._rows[number], **changes)  # type: ignore[type-var]
            return self._rows[number]


class Store:
    """All tables, the namespaces, and the job logs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: Table[User] = Table(self.lock, 2)
        self.projects: Table[Project] = Table(self.lock, 11)
        self.runners: Table[Runner] = Table(self.lock, 21)
        self.pipelines: Table[Pipeline] = Table(self.lock, 101)
        self.jobs: Table[Job] = Table(self.lock, 1001)
        self.applications: Table[OAuthApplication] = Table(self.lock, 31)
        self.grants: Table[AccessGrant] = Table(self.lock, 1)
        self.access_tokens: Table[AccessToken] = Table(self.lock, 1)
        self.traces: dict[int, bytearray] = {}
        self._namespaces: dict[str, int] = {}

    def namespace_id(self, path: str) -> int:
        """The id of a namespace, given out at first mention."""
        with self.lock:
            return self._namespaces.setdefault(path, 51 + len(self._namespaces))

    def jobs_of(self, pipeline_id: int) -> list[Job]:
        """All jobs of a pipeline, by rising id."""
        return self.jobs.select(lambda job: job.pipeline_id == pipeline_id)

    def project_by_path(self, full_path: str) -> Project | None:
        """The project at `namespace/path`."""
        return self.projects.find(lambda project: project.full_path.lower() == full_path.lower())

    def set_status(self, job_id: int, status: JobStatus, **changes: Any) -> Job:
        """Move a job to a state, with the fields that change beside it."""
        return self.jobs.update(job_id, status=status, **changes)
