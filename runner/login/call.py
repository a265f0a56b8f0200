"""What a verb gets to work with besides its request, and what can be stopped while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from runner.login.failures import VerbFailed, malformed
from runner.login.outbox import Outbox
from runner.login.tools import Tools
from runner.login.user import User


class Stoppable(Protocol):
    """A request that goes on until it is stopped."""

    def stop(self, grace_seconds: float, *, drain: bool) -> None:
        """End it and return once it has ended; ``drain``: let it hand over what is there first."""


T = TypeVar("T", bound=Stoppable)


class Registry:
    """The requests under way, by their id, and how to stop those that can be stopped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: dict[int, Stoppable | None] = {}
        self._closed = False

    def begin(self, number: int) -> None:
        """Note a request before its thread starts, so that a stop that comes right after finds it."""
        with self._changed:
            if number in self._entries:
                raise malformed("the id of a request under way was used again")
            self._entries[number] = None

    def start(self, number: int, make: Callable[[], T]) -> T:
        """Make what can be stopped and take note of it in one step; raises VerbFailed once the agent is ending."""
        with self._changed:
            if self._closed:
                raise VerbFailed("agent.ending", "The login agent is ending.", "Connect again.")
            entry = make()
            self._entries[number] = entry
            self._changed.notify_all()
        return entry

    def end(self, number: int) -> None:
        """Forget a request that was answered."""
        with self._changed:
            self._entries.pop(number, None)
            self._changed.notify_all()

    def get(self, number: int) -> Stoppable | None:
        """Give what to stop for a request, once it has got that far; None where the request has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries.get(number) is not None or number not in self._entries)
            return self._entries.get(number)

    def close(self) -> list[Stoppable]:
        """Let nothing new start and give everything that is to be stopped."""
        with self._changed:
            self._closed = True
            return [entry for entry in self._entries.values() if entry is not None]


class Call:
    """The surroundings of one request."""

    __slots__ = ("_outbox", "number", "registry", "tools", "user")

    def __init__(self, number: int, user: User, tools: Tools, registry: Registry, outbox: Outbox) -> None:
        self.number = number
        self.user = user
        self.tools = tools
        self.registry = registry
        self._outbox = outbox

    def output(self, data: bytes, **fields: Any) -> None:
        """Send a piece of output for this request."""
        self._outbox.send({"id": self.number, "event": "output", **fields}, data)
