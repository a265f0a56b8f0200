"""Passes a job's log to its executor as it grows; a log that is silent has no thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from bridge.cluster.node import Following, LoginNode
from bridge.crew import Crew, Errand
from bridge.errors import BridgeError
from bridge.runs.feed import Feed, FeedClosed

HINT_EVERY_SECONDS: Final = 1.0
"""Output often comes just before the end: then Slurm is asked at a quicker pace."""


class JobLog:
    """The log of one job, read over one connection. ``begin`` it, then ``finish`` it; ``leave`` it in any case."""

    def __init__(
        self,
        crew: Crew,
        feed: Feed,
        offset: int,
        *,
        on_output: Callable[[], None] = lambda: None,
        on_lost: Callable[[BridgeError], None] = lambda error: None,
    ) -> None:
        """Read from ``offset`` on. ``on_output`` is called now and then while something comes, ``on_lost`` once where
        the reading fails before ``finish``; on other threads, so they must be quick."""
        self.offset = offset
        """Of the first byte that the feed has not got."""
        self._feed = feed
        self._on_output = on_output
        self._on_lost = on_lost
        self._patience = crew.rest_seconds
        self._pump = Errand(crew, self._pass_on_what_came)
        self._reading = threading.Lock()
        self._following: Following | None = None
        self._lost: BridgeError | None = None
        self._hinted = 0.0

    def begin(self, node: LoginNode, path: str) -> None:
        """Read the file from now on; raises BridgeError."""
        with self._reading:
            self._following = node.follow(path, self.offset, self._pump.call)

    def finish(self) -> None:
        """Pass on the rest of the file as it is now; raises BridgeError where it can't be read, FeedClosed."""
        if self._following is None:
            return
        self._following.finish()
        with self._reading:
            if self._lost is not None:
                raise self._lost
            self._pass_on(self._following, self._following)

    def leave(self) -> None:
        """Read no more. A piece that waits for the executor is passed on before anybody goes on from behind it."""
        try:
            if self._following is not None:
                self._following.abandon()
        finally:
            with self._reading:
                self._following = None

    def _pass_on_what_came(self) -> None:
        with self._reading:
            if self._following is None or self._lost is not None:
                return
            try:
                self._pass_on(self._following, self._following.waiting(self._patience))
            except FeedClosed:
                self._following.abandon()
            except BridgeError as error:
                self._lost = error
                self._on_lost(error)

    def _pass_on(self, following: Following, pieces: Iterable[tuple[int, bytes]]) -> None:
        for offset, piece in pieces:
            if not self._feed.log(piece):
                following.abandon()
                return
            self.offset = offset + len(piece)
            if time.monotonic() - self._hinted > HINT_EVERY_SECONDS:
                self._hinted = time.monotonic()
                self._on_output()
