"""Remembers which jobs have tickets on this node, in files of root's: a directory for each uid, a file for each job.

A cache belongs to (uid, node) and is shared by all of the uid's jobs that the bridge has here: the last one to go takes
it along. What was written before the last boot is told by the kernel's boot id, so that a cache in a /tmp that outlives
a boot is not forgotten.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Give the id that the kernel made for itself at this boot (random(4))."""
    return Path(_BOOT_ID).read_text().strip()


class Marker:
    """One job's tickets: in ``cache``, fetched at ``got``, good until ``end`` (seconds since 1970)."""

    __slots__ = ("boot", "cache", "end", "got", "job_id", "refused")

    def __init__(self, job_id: str, cache: str, got: float, end: float, boot: str, refused: str = "") -> None:
        """``boot`` is the boot id at the time; ``refused`` is why the bridge gives no more, empty while it may."""
        self.job_id = job_id
        self.cache = cache
        self.got = got
        self.end = end
        self.boot = boot
        self.refused = refused

    def fields(self) -> dict[str, object]:
        """Give all but the job's id, as it is written."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "job_id"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marker) and (self.job_id, self.fields()) == (other.job_id, other.fields())

    __hash__ = None  # type: ignore[assignment]


class Markers:
    """The markers of one uid."""

    def __init__(self, directory: str, uid: int) -> None:
        """Take the directory below which each uid has its own."""
        self._path = Path(directory) / str(uid)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the hooks of one uid apart: what they do to the cache happens one after the other."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._path, DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def put(self, marker: Marker) -> None:
        """Write a marker; a crash leaves the old one or the new one."""
        draft = self._path / f".{marker.job_id}"
        draft.write_text(json.dumps(marker.fields()))
        draft.replace(self._path / marker.job_id)

    def get(self, job_id: str) -> Marker | None:
        """Give a job's marker; None where there is none that can be read."""
        try:
            values = json.loads((self._path / job_id).read_text())
            return Marker(
                job_id,
                str(values["cache"]),
                float(values["got"]),
                float(values["end"]),
                str(values["boot"]),
                str(values["refused"]),
            )
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def remove(self, job_id: str) -> None:
        """Forget a job."""
        (self._path / job_id).unlink(missing_ok=True)

    def all(self) -> list[Marker]:
        """Give every marker of the uid."""
        try:
            names = [entry.name for entry in self._path.iterdir()]
        except FileNotFoundError:
            return []
        found = (self.get(name) for name in names if name.isascii() and name.isdigit())
        return [marker for marker in found if marker is not None]

    def needed(self, now: float, without: Collection[Marker] = ()) -> bool:
        """Tell whether a job remains, beside some, whose tickets are good; what outlived its tickets does not count."""
        boot = boot_id()
        return any(one.boot == boot and one.end > now for one in self.all() if one not in without)


def uids(directory: str) -> list[int]:
    """Give every uid that has had tickets here."""
    try:
        names = [entry.name for entry in Path(directory).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


@contextlib.contextmanager
def alone(directory: str) -> Iterator[bool]:
    """Tell whether no other refresh is at work on this node, and keep others from it."""
    path = Path(directory)
    if not path.is_dir():
        yield True
        return
    descriptor = os.open(path, DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
