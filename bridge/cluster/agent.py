"""One connection to a login agent: requests out, frames back to whoever asked, many at once.

A thread reads for as long as the connection lives. When it ends, or the agent has been silent for too long, every
request that still waits fails with Outage ``login.connection_lost``. A connection lives longer than the tickets that
made it: what is under way at their end comes to its own, but nothing new begins (Outage ``login.tickets_ended``).
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Protocol

from bridge.cluster.stream import Header, Reply, Sink
from bridge.errors import BridgeError, Defect, Outage, PolicyRefused, RequestRefused
from runner import wire

PING_SECONDS: Final = 20.0
"""The agent is asked for a sign of life after this long without a frame, and given up after as long again."""

_AFTER_END: Final = frozenset({"stop", "hello"})
"""What is still asked for once the tickets have ended: to end what runs, and for signs of life."""

_CODE: Final = re.compile(r"[a-z_]{1,32}(\.[a-z_]{1,32}){1,3}", re.ASCII)
_MAX_TEXT: Final = 300
_MAX_DETAIL: Final = 4096

_KINDS: Final[Mapping[str, type[BridgeError]]] = MappingProxyType(
    {
        "workspace.foreign": PolicyRefused,
        "tickets.foreign": PolicyRefused,
        "tickets.unreadable": PolicyRefused,
        "slurm.refused": RequestRefused,
        "agent.request": Defect,
        "agent.protocol": Defect,
    }
)
"""Codes of the agent that are not outages."""


class Pipe(Protocol):
    """Bytes to and from an agent: an SSH channel, or a child process in tests."""

    def send(self, data: bytes) -> None:
        """Send all of it; raises OSError."""
        ...

    def receive(self, seconds: float) -> bytes:
        """Give what has come, empty at the end; raises TimeoutError, OSError."""
        ...

    @property
    def last_words(self) -> str:
        """The end of what came on standard error."""
        ...

    def close(self) -> None:
        """Close both directions."""
        ...


class AgentConnection:
    """Multiplexes requests over one pipe. Safe in threads."""

    def __init__(self, pipe: Pipe, *, ping_seconds: float = PING_SECONDS, ends: datetime | None = None) -> None:
        """Take ``ends`` of the tickets with which the connection was made; None where there were none."""
        self._pipe = pipe
        self._ends = ends
        self._ping_seconds = ping_seconds
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._sinks: dict[int, Sink] = {}
        self._lost: BridgeError | None = None
        threading.Thread(target=self._read, name="login-agent-reader", daemon=True).start()

    @property
    def alive(self) -> bool:
        """False once the connection is lost or closed."""
        return self._lost is None

    @property
    def pending(self) -> int:
        """How many requests wait for their end."""
        return len(self._sinks)

    def reserve(self) -> int:
        """Give the id for a request that is to be started."""
        return next(self._numbers)

    def start(self, number: int, verb: str, sink: Sink, fields: Mapping[str, Any], data: bytes = b"") -> None:
        """Send a request whose frames go to ``sink``; raises Outage, RequestRefused ``login.too_large``."""
        if self._ends is not None and datetime.now(UTC) >= self._ends and verb not in _AFTER_END:
            raise _tickets_ended(verb)
        try:
            frame = wire.encode({"id": number, "verb": verb, **fields}, data)
        except wire.BrokenFrame as error:
            raise _too_large(verb, str(error)) from error
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._sinks[number] = sink
        try:
            with self._sending:
                self._pipe.send(frame)
        except OSError as error:
            lost = _connection_lost(str(error), self._pipe.last_words)
            self._lose(lost)
            raise lost from error

    def ask(self, verb: str, seconds: float, data: bytes = b"", /, **fields: Any) -> Header:
        """Send a request and wait for its answer; raises what the agent says, Outage ``login.timeout``."""
        reply, number = Reply(), self.reserve()
        self.start(number, verb, reply, fields, data)
        answer = reply.wait(seconds)
        if answer is None:
            self.drop(number)
            raise _timeout(verb, seconds)
        return answer

    def tell(self, verb: str, fields: Mapping[str, Any]) -> None:
        """Send a request and do not wait for its answer; raises Outage."""
        self.start(self.reserve(), verb, Reply(), fields)

    def drop(self, number: int) -> None:
        """Forget a request; frames that still come for it are ignored."""
        with self._lock:
            self._sinks.pop(number, None)

    def close(self) -> None:
        """Close the connection; the agent stops what it runs, Slurm jobs stay."""
        self._lose(_connection_lost("closed by the bridge", ""))

    def _read(self) -> None:
        decoder = wire.Decoder()
        try:
            while piece := self._receive():
                for header, data in decoder.feed(piece):
                    self._dispatch(header, data)
            why = "the agent ended"
        except (OSError, wire.BrokenFrame) as error:
            why = f"{type(error).__name__}: {error}"
        self._lose(_connection_lost(why, self._pipe.last_words))

    def _receive(self) -> bytes:
        """Give the next bytes; a silent agent is asked once for a sign of life. Raises OSError."""
        try:
            return self._pipe.receive(self._ping_seconds)
        except TimeoutError:
            try:
                self.tell("hello", {"protocol": wire.PROTOCOL})
            except BridgeError as error:
                raise OSError(str(error)) from error
        return self._pipe.receive(self._ping_seconds)

    def _dispatch(self, header: Header, data: bytes) -> None:
        number, event = header.get("id"), header.get("event")
        if not isinstance(number, int):
            raise wire.BrokenFrame("a frame for no request")
        with self._lock:
            sink = self._sinks.get(number)
            if event in ("done", "error"):
                self._sinks.pop(number, None)
        if sink is None:
            return
        try:
            if event == "done":
                sink.done(header)
            elif event == "error":
                sink.fail(agent_error(header))
            elif event == "output":
                sink.output(header, data)
        except BridgeError as error:
            self.drop(number)
            sink.fail(error)

    def _lose(self, error: BridgeError) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            sinks = list(self._sinks.values())
            self._sinks.clear()
        self._pipe.close()
        for sink in sinks:
            sink.fail(error)


def agent_error(header: Header) -> BridgeError:
    """Make the error that an agent's ``error`` frame stands for; its texts are a stranger's and are cleaned."""
    code = header.get("code")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        code = "login.agent_error"
    title = printable(header.get("title"), _MAX_TEXT) or "The login agent could not do what the bridge asked."
    remedy = printable(header.get("remedy"), _MAX_TEXT) or "Give the reference to the operators of the bridge."
    detail = printable(header.get("detail"), _MAX_DETAIL)
    return _KINDS.get(code, Outage)(code, title, remedy, detail=detail, at=round(time.time()))


def printable(value: object, bound: int) -> str:
    """Give a text of at most ``bound`` printable characters, line ends as spaces; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    joined = " ".join(value[: bound * 2].split())
    return "".join(character for character in joined if character.isprintable())[:bound]


def _connection_lost(why: str, last_words: str) -> BridgeError:
    return Outage(
        "login.connection_lost",
        "The connection to the login node broke.",
        "Retry the job; if it lasts, tell the operators of the cluster.",
        why=why,
        stderr=printable(last_words, _MAX_DETAIL),
    )


def _tickets_ended(verb: str) -> BridgeError:
    return Outage(
        "login.tickets_ended",
        "The tickets of the connection to the login node have ended.",
        "Nothing is to be done: the bridge goes on over a new connection with fresh tickets.",
        verb=verb,
    )


def _timeout(verb: str, seconds: float) -> BridgeError:
    return Outage(
        "login.timeout",
        "The login node took too long to answer.",
        "Retry the job; if it lasts, tell the operators of the cluster.",
        verb=verb,
        seconds=seconds,
    )


def _too_large(verb: str, why: str) -> BridgeError:
    return RequestRefused(
        "login.too_large",
        "A script of the job is too large for the bridge.",
        "Make the job's script smaller; put long parts into files of the project.",
        verb=verb,
        why=why,
    )
