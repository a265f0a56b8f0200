"""LoginNode over a connection to the login agent: one method for each verb, with typed answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from bridge.cluster.agent import AgentConnection, printable
from bridge.cluster.node import Exit, Hello, JobRow, Submitted, Workspace, nobody
from bridge.cluster.stream import Header, Stream
from bridge.errors import BridgeError, Defect, Outage
from runner import wire

QUICK_SECONDS: Final = 15.0
FILE_SECONDS: Final = 60.0
"""Shared file systems have slow moments."""
SLURM_SECONDS: Final = 75.0
"""The agent gives each of Slurm's commands 30 s and may need two."""
DESTROY_SECONDS: Final = 300.0
"""A workspace may hold a million files."""

HOLD_UP_SECONDS: Final = 0.25
"""How long a log whose consumer is behind may hold up the others on its connection, before it is let go of: what is
under way then comes a second time, so a consumer that is only a little slow is worth the wait."""

_MAX_ROWS: Final = 10_000

_T = TypeVar("_T")


class LoginSession:
    """LoginNode, over one AgentConnection. Safe in threads."""

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection

    @property
    def alive(self) -> bool:
        """False once the connection is lost."""
        return self._connection.alive

    @property
    def pending(self) -> int:
        """How many requests are under way."""
        return self._connection.pending

    def close(self) -> None:
        """Close the connection; scripts on the login node end, Slurm jobs go on."""
        self._connection.close()

    def hello(self) -> Hello:
        """See LoginNode."""
        answer = self._connection.ask("hello", QUICK_SECONDS, protocol=wire.PROTOCOL)
        if answer.get("protocol") != wire.PROTOCOL:
            raise Defect(
                "login.protocol",
                "The login agent on the login node speaks another version of the bridge's protocol.",
                "An operator installs the same release on the bridge and on the login node.",
                theirs=answer.get("protocol"),
                ours=wire.PROTOCOL,
            )
        return _typed(lambda: Hello(*_fields(answer, user=str, uid=int, gid=int, host=str, home=str)))

    def workspace(self, run: str, builds_root: str, cache_root: str) -> Workspace:
        """See LoginNode."""
        answer = self._connection.ask(
            "workspace", FILE_SECONDS, run=run, builds_root=builds_root, cache_root=cache_root
        )
        return _typed(lambda: Workspace(*_fields(answer, builds_dir=str, cache_dir=str, private_dir=str)))

    def put_tickets(self, ccache: str, data: bytes) -> datetime | None:
        """See LoginNode."""
        answer = self._connection.ask("tickets", FILE_SECONDS, data, ccache=ccache)
        return _typed(lambda: _moment(answer.get("login_until")))

    def drop_tickets(self, ccache: str) -> bool:
        """See LoginNode."""
        return bool(self._connection.ask("drop_tickets", FILE_SECONDS, ccache=ccache).get("removed"))

    def run(self, script: bytes, *, env: Mapping[str, str], cwd: str | None = None) -> RunningScript:
        """See LoginNode."""
        fields: dict[str, Any] = {"env": dict(env)} | ({} if cwd is None else {"cwd": cwd})
        return RunningScript(self._connection, script, fields)

    def put(self, path: str, data: bytes, mode: int) -> None:
        """See LoginNode."""
        self._connection.ask("put", FILE_SECONDS, data, path=path, mode=mode)

    def submit(self, argv: Sequence[str]) -> Submitted:
        """See LoginNode."""
        answer = self._connection.ask("submit", SLURM_SECONDS, argv=list(argv))
        cluster = answer.get("cluster")
        return _typed(lambda: Submitted(_job_id(answer), None if cluster is None else printable(cluster, 64)))

    def release(self, job_id: int) -> None:
        """See LoginNode."""
        self._connection.ask("release", SLURM_SECONDS, job_id=str(job_id))

    def cancel(self, job_id: int, signal: str | None = None) -> None:
        """See LoginNode."""
        extra = {} if signal is None else {"signal": signal}
        self._connection.ask("cancel", SLURM_SECONDS, job_id=str(job_id), **extra)

    def find(self, name: str) -> tuple[JobRow, ...]:
        """See LoginNode."""
        return _rows(self._connection.ask("find", SLURM_SECONDS, name=name))

    def state(self, job_ids: Sequence[int]) -> tuple[JobRow, ...]:
        """See LoginNode."""
        return _rows(self._connection.ask("state", SLURM_SECONDS, job_ids=[str(job_id) for job_id in job_ids]))

    def follow(self, path: str, offset: int, ready: Callable[[], None] = nobody) -> FollowedFile:
        """See LoginNode."""
        return FollowedFile(self._connection, path, offset, ready)

    def destroy(self, run: str, builds_root: str, ccache: str | None) -> bool:
        """See LoginNode."""
        answer = self._connection.ask("destroy", DESTROY_SECONDS, run=run, builds_root=builds_root, ccache=ccache)
        return answer.get("left") is True


class RunningScript:
    """Running, for a script that the agent runs."""

    def __init__(self, connection: AgentConnection, script: bytes, fields: Mapping[str, Any]) -> None:
        self._connection = connection
        self._stream = Stream()
        self._number = connection.reserve()
        connection.start(self._number, "run", self, fields, script)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._stream.take()) is not None:
            yield piece[1]

    @property
    def exit(self) -> Exit:
        """See Running."""
        final = self._stream.final
        if final is None:
            raise Defect("login.not_over", "A script was asked for its end before it came.", "Report it.")
        return Exit(_small(final.get("exit_code")), _small(final.get("signal")))

    def stop(self, grace_seconds: float) -> None:
        """See Running."""
        self._connection.ask(
            "stop", grace_seconds + QUICK_SECONDS, target=self._number, grace_seconds=grace_seconds, drain=False
        )

    def output(self, _header: Header, data: bytes) -> None:
        """See Sink."""
        try:
            self._stream.put(0, data)
        except BridgeError:
            self._connection.tell("stop", {"target": self._number, "grace_seconds": 5, "drain": False})
            raise

    def done(self, header: Header) -> None:
        """See Sink."""
        self._stream.end(header)

    def fail(self, error: BridgeError) -> None:
        """See Sink."""
        self._stream.fail(error)


class FollowedFile:
    """Following, for a file that the agent reads.

    When the consumer falls behind by more than the stream holds, the agent is told to stop, and asked again from the
    next offset once the consumer has caught up: what waits, waits in the file.
    """

    def __init__(self, connection: AgentConnection, path: str, offset: int, ready: Callable[[], None]) -> None:
        self._connection = connection
        self._path = path
        self._ready = ready
        self._lock = threading.Lock()
        self._finishing = False
        self._round: _Round
        self._begin(offset)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self._pieces(None)

    def waiting(self, seconds: float) -> Iterator[tuple[int, bytes]]:
        """See Following."""
        return self._pieces(seconds)

    def _pieces(self, seconds: float | None) -> Iterator[tuple[int, bytes]]:
        while True:
            current = self._round
            while (piece := current.stream.take(seconds)) is not None:
                yield piece
            if not current.stream.drained or not current.overflowed or current.abandoned:
                return
            self._begin(current.next_offset)

    def finish(self) -> None:
        """See Following."""
        with self._lock:
            self._finishing = True
            current = self._round
        current.stop(drain=True)

    def abandon(self) -> None:
        """See Following."""
        with self._lock:
            self._finishing = True
            current = self._round
        current.abandon()

    def _begin(self, offset: int) -> None:
        started = _Round(self._connection, self._path, offset, self._ready)
        with self._lock:
            self._round = started
            finishing = self._finishing
        if finishing:
            started.stop(drain=True)


class _Round:
    """One ``follow`` request, from its offset until it is stopped or the consumer falls behind."""

    def __init__(self, connection: AgentConnection, path: str, offset: int, ready: Callable[[], None]) -> None:
        self.stream = Stream()
        self.next_offset = offset
        self.overflowed = False
        self.abandoned = False
        self._connection = connection
        self._ready = ready
        self._number = connection.reserve()
        connection.start(self._number, "follow", self, {"path": path, "offset": offset})

    def stop(self, *, drain: bool) -> None:
        """Tell the agent to stop, without waiting: its last frame ends the stream."""
        self._connection.tell("stop", {"target": self._number, "grace_seconds": 0, "drain": drain})

    def abandon(self) -> None:
        """Stop and drop all that is unread."""
        self.abandoned = True
        self.stream.close()
        if self._connection.alive:
            self.stop(drain=False)

    def output(self, header: Header, data: bytes) -> None:
        """See Sink."""
        if self.overflowed:
            return
        if header.get("offset") != self.next_offset:
            raise Outage(
                "login.gap",
                "The login node sent a part of the job's log twice or left one out.",
                "Retry the job; if it lasts, give the reference to the operators of the bridge.",
                expected=self.next_offset,
                got=header.get("offset"),
            )
        if self.stream.offer(self.next_offset, data, HOLD_UP_SECONDS):
            self.next_offset += len(data)
            self._ready()
        else:
            self.overflowed = True
            self.stop(drain=False)

    def done(self, header: Header) -> None:
        """See Sink."""
        self.stream.end(header)
        self._ready()

    def fail(self, error: BridgeError) -> None:
        """See Sink."""
        self.stream.fail(error)
        self._ready()


def _fields(answer: Header, **kinds: type) -> list[Any]:
    return [_checked(answer[name], kind) for name, kind in kinds.items()]


def _checked(value: object, kind: type) -> Any:
    if type(value) is not kind or (isinstance(value, str) and (len(value) > 4096 or "\0" in value)):
        raise ValueError(f"{value!r:.100} is not a {kind.__name__}")
    return value


def _typed(make: Callable[[], _T]) -> _T:
    try:
        return make()
    except (KeyError, ValueError, TypeError) as error:
        raise Outage(
            "login.malformed",
            "The login agent's answer does not have the form that it must have.",
            "An operator installs the same release on the bridge and on the login node.",
            why=str(error)[:300],
        ) from error


def _job_id(row: Mapping[str, Any]) -> int:
    text = row["job_id"]
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) == 0:
        raise ValueError(f"{text!r:.100} is not a job id")
    return int(text)


def _moment(value: object) -> datetime | None:
    """Read seconds since 1970 as a ccache has them, 32 bits without a sign."""
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError(f"{value!r:.100} is not a time")
    return datetime.fromtimestamp(value, UTC)


def _small(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 16 else None


def _rows(answer: Header) -> tuple[JobRow, ...]:
    return _typed(lambda: tuple(_row(row) for row in list(answer["jobs"])[:_MAX_ROWS]))


def _row(row: Mapping[str, Any]) -> JobRow:
    return JobRow(
        job_id=_job_id(row),
        state=printable(row["state"], 200),
        exit_code=_small(row.get("exit_code")),
        signal=_small(row.get("signal")),
        nodes=printable(row.get("nodes"), 4096),
        reason=printable(row.get("reason"), 200),
        submit=printable(row.get("submit"), 64),
    )
