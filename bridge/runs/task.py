"""One stage at work: turns of a thread that do it, a feed that tells of it, and a way to cancel it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Final, Protocol

import structlog

from bridge.cluster.node import LoginNode
from bridge.crew import Crew, Errand
from bridge.errors import BridgeError, Defect
from bridge.model import StageKind, StageState
from bridge.runs.book import StageBook
from bridge.runs.feed import Feed, FeedClosed, outcome_of
from runner.wire import Outcome

KILL_GRACE_SECONDS: Final = 5.0
"""Between TERM and KILL for what runs on the login node."""

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 15.0
"""Between two tries to go on; it doubles."""

log = structlog.get_logger()


class LoginSource(Protocol):
    """Gives a connection to the run's login node as its account."""

    @property
    def node(self) -> LoginNode:
        """A live connection, made now if need be; raises BridgeError. Ask anew for each thing to do."""
        ...


class StageTask(ABC):
    """A stage that was asked for; the subclass says what it does.

    It has a thread while there is something to do. One that only waits for news may rest, and is woken by them.
    """

    def __init__(self, book: StageBook, login: LoginSource, crew: Crew, feed: Feed | None = None) -> None:
        self.book = book
        self.feed = feed or Feed()
        self.crew = crew
        self.rests = False
        """Whether ``go_on`` came back because there is nothing to do now; the thread that takes the turn sets it."""
        self._login = login
        self._turns = Errand(crew, self._take_turn)
        self._started = False
        self._changed = threading.Condition(threading.Lock())
        self._cancelled = False
        self._over = False
        self._closed = False
        self._because: BridgeError | None = None

    @property
    def kind(self) -> StageKind:
        """Where the stage runs."""
        return self.book.stage.kind

    @property
    def over(self) -> bool:
        """True once nothing of the stage is at work any more."""
        return self._over

    def start(self) -> None:
        """Begin, in a thread of the crew."""
        self._started = True
        self._turns.call()

    def wake(self) -> None:
        """Have a stage that rests look what there is to do; harmless where it doesn't. From any thread."""
        if self._started and not self.over:
            self._turns.call()

    def cancel(self, because: BridgeError | None = None) -> None:
        """Ask the stage to end; the feed says when it has, and ``because`` of what where nobody asked for it."""
        self._because = self._because or because
        self._cancelled = True
        self.interrupt()

    def close(self) -> None:
        """Let go of it: nobody listens any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.feed.close()
        self.wake()

    @property
    def closed(self) -> bool:
        """Whether this process has let go of the stage; then nothing more is recorded of it here."""
        return self._closed

    def wait(self, seconds: float) -> bool:
        """Wait until the stage is over; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._over, seconds)

    @abstractmethod
    def work(self, node: LoginNode) -> None:
        """Do the stage on the login node, writing to the feed and the book; raises BridgeError."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make ``work`` notice that it was cancelled; called from another thread, at any moment."""

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the end."""
        return self._cancelled

    def end(self, state: StageState, outcome: Outcome, exit_code: int | None = None) -> None:
        """Record how it ended, then tell the executor."""
        because = self._because if outcome is Outcome.CANCELLED else None
        self.book.finish(state, outcome, exit_code=exit_code, code=because.code if because else None)
        if because is None:
            self.feed.end(outcome, exit_code)
        else:
            self.feed.fail(because, because.reference or self.book.reference)

    def outlives(self, error: BridgeError) -> bool:
        """Whether ``work`` can go on with a new connection after this error."""
        return False

    def go_on(self) -> None:
        """Do what there is to do, over the connection that there is; raises BridgeError."""
        self.work(self._login.node)

    def let_go(self) -> None:  # noqa: B027 - most stages hold nothing
        """Give back what a stage that rested holds on others; called once, when it is over."""

    def _take_turn(self) -> None:
        if self.over:
            return
        self.rests = False
        self._do_turn()
        if not self.rests:
            self.let_go()
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _do_turn(self) -> None:
        try:
            self._work_on()
            if not self.rests and not self.feed.ended:
                raise Defect("stage.silent", "The stage ended without a result.", "Report it to the operators.")
        except FeedClosed:
            # This process lets go. What is on record stays as it is, for whoever takes the stage up again.
            pass
        except BridgeError as error:
            self._fail(error)
        except Exception as error:
            log.exception("stage.defect", kind=type(error).__name__, reference=self.book.reference)
            self._fail(Defect("stage.defect", "The bridge failed at its own work.", "Report it to the operators."))

    def _work_on(self) -> None:
        """Do the work, over as many connections as it takes."""
        pause = FIRST_PAUSE_SECONDS
        while not self.closed:
            try:
                self.go_on()
                return
            except BridgeError as error:
                if not self.outlives(error):
                    raise
                self.feed.note(f"{error.title} Trying again ({error.code})")
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, pause)
                pause = min(pause * 2, MAX_PAUSE_SECONDS)

    def _fail(self, error: BridgeError) -> None:
        if self.closed:
            return
        log.info("stage.failed", code=error.code, reference=self.book.reference, context=dict(error.context))
        try:
            self.book.finish(StageState.LOST, outcome_of(error), code=error.code)
        except BridgeError as second:
            log.warning("stage.unrecorded", code=second.code, reference=self.book.reference)
        self.feed.fail(error, error.reference or self.book.reference)
