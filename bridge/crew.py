"""Threads on demand: as many as there is work at this moment, none for what waits.

A thread of its own for everything that is under way would be simpler, and costs some 25 KiB each while it waits. So
whoever has to wait for long gives its thread back, and is called again when there is something to do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

SPARE_SECONDS: Final = 10.0
"""How long a thread without work is kept: a new one costs a memory arena and a cold start."""

REST_SECONDS: Final = 1.0
"""How long whoever waits for news keeps its thread. Less, and what comes now and then has a thread called each time;
more, and threads wait for what seldom comes."""

Work = Callable[[], object]
_Task = tuple[Work, Work]


def _nothing() -> None:
    """Is the work of a worker that has none."""


_NOTHING: Final[_Task] = (_nothing, _nothing)

log = structlog.get_logger()


class Crew:
    """Does pieces of work in threads of its own, each at once. Safe in threads.

    There is no bound on the threads: work that is stuck holds up no other. They are daemons, since one that is stuck
    must not keep the process from ending.
    """

    def __init__(self, name: str, spare_seconds: float = SPARE_SECONDS, rest_seconds: float = REST_SECONDS) -> None:
        """Take the threads' name, how long one without work is kept, and how long work may keep one without news."""
        self.rest_seconds = rest_seconds
        self.name = name
        self._spare_seconds = spare_seconds
        self._lock = threading.Lock()
        self._free: dict[_Worker, None] = {}
        """The last to become free is the first to be taken, so that the others come to be spare."""
        self._owed: deque[_Task] = deque()
        """For which no thread could be had; whoever is done next takes one."""

    def start(self, work: Work, then: Work = _nothing) -> None:
        """Begin ``work`` now; it must not raise. ``then`` is done after it, when its thread counts as free again."""
        task = (work, then)
        if self._given(task, or_owed=False):
            return
        worker = _Worker()
        worker.give(task)
        try:
            threading.Thread(target=self._serve, args=(worker,), name=self.name, daemon=True).start()
        except RuntimeError:
            log.warning("crew.no_thread", name=self.name)
            self._given(task, or_owed=True)

    def _given(self, task: _Task, *, or_owed: bool) -> bool:
        """Give it to a thread that is free, if there is one; else whoever is done next takes it, where that is said."""
        with self._lock:
            if self._free:
                self._free.popitem()[0].give(task)
                return True
            if or_owed:
                self._owed.append(task)
            return or_owed

    def _serve(self, worker: _Worker) -> None:
        while self._has_task(worker):
            work, then = worker.take()
            work()
            with self._lock:
                if self._owed:
                    worker.give(self._owed.popleft())
                else:
                    self._free[worker] = None
            then()
            # What was done is not kept while there is nothing to do.
            del work, then

    def _has_task(self, worker: _Worker) -> bool:
        """Wait until the worker has something to do; False when it has been spare for long."""
        if worker.given.acquire(timeout=self._spare_seconds):
            return True
        with self._lock:
            if worker in self._free:
                del self._free[worker]
                return False
        # Somebody gave it a task just now.
        return worker.given.acquire()


class _Worker:
    """A thread that is free, and how it is told of its next task.

    A lock, since in CPython 3.11 ``queue.SimpleQueue.get`` may wait for ever where its timeout is over at the wrong
    moment, and this is the way of every call to libkrb5.
    """

    __slots__ = ("given", "task")

    def __init__(self) -> None:
        self.given = threading.Lock()
        self.given.acquire()
        self.task = _NOTHING

    def give(self, task: _Task) -> None:
        """Have it go on; only for whoever took it from the list of the free."""
        self.task = task
        self.given.release()

    def take(self) -> _Task:
        """Return what it was given, and keep it no more."""
        task, self.task = self.task, _NOTHING
        return task


class Errand:
    """Work that is done whenever somebody calls for it, and never twice at once. Safe in threads.

    A call while it is being done has it done once more afterwards: nothing that came before the call is overlooked.
    """

    def __init__(self, crew: Crew, work: Work) -> None:
        """Take the crew that does it; ``work`` must not raise."""
        self._crew = crew
        self._work = work
        self._lock = threading.Lock()
        self._wanted = False
        self._busy = False

    def call(self) -> None:
        """Have it done; returns at once."""
        with self._lock:
            self._wanted = True
            if self._busy:
                return
            self._busy = True
        self._crew.start(self._do)

    def _do(self) -> None:
        try:
            while self._called():
                self._work()
        except BaseException:
            # A defect ends this thread; the next call must find another.
            with self._lock:
                self._busy = False
            raise

    def _called(self) -> bool:
        with self._lock:
            self._busy, self._wanted = self._wanted, False
            return self._busy
