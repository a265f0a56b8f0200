"""Stages on the login node: the runner's own helper scripts, and the preparation of the workspace."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from bridge.cluster.node import LoginNode, Running
from bridge.crew import Crew
from bridge.errors import BridgeError, Defect, Outage
from bridge.model import StageState
from bridge.runs.book import StageBook
from bridge.runs.login_tickets import LoginTickets
from bridge.runs.places import Places, login_ccache
from bridge.runs.task import KILL_GRACE_SECONDS, LoginSource, StageTask
from runner.wire import Outcome

SIGNAL_BASE = 128
"""What a shell reports for a command that a signal ended: 128 + the signal's number."""

log = structlog.get_logger()


class LoginStage(StageTask):
    """Runs the runner's script as the account on the login node; the script is never on a disk."""

    def __init__(
        self,
        book: StageBook,
        login: LoginSource,
        crew: Crew,
        script: bytes,
        where: Places,
        tickets: LoginTickets,
    ) -> None:
        super().__init__(book, login, crew)
        self._tickets = tickets
        self._script = script
        self._where = where
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._renewing = threading.Lock()
        self._not_renewed = False

    def work(self, node: LoginNode) -> None:
        """Run the script and pass its output on."""
        self._tickets.follow(node)
        try:
            self._run(node)
        finally:
            # Whoever waits for the stage's end removes its tickets then: none may be put there afterwards.
            with self._renewing:
                self._running = None

    def _run(self, node: LoginNode) -> None:
        with self._lock:
            if self.cancelled:
                self.end(StageState.CANCELLED, Outcome.CANCELLED)
                return
            self.book.advance(StageState.RUNNING)
            self._running = running = node.run(self._script, env=self._environment())
            self._script = b""
        for piece in running:
            self.feed.log(piece)
        how = running.exit
        code = how.exit_code if how.exit_code is not None else SIGNAL_BASE + (how.signal or 0)
        if self.cancelled:
            self.end(StageState.CANCELLED, Outcome.CANCELLED, code)
        else:
            self.end(StageState.ENDED, Outcome.OK if code == 0 else Outcome.SCRIPT_FAILED, code)

    @property
    def needs_tickets(self) -> bool:
        """Whether its script runs on and the tickets that it works with end soon."""
        at_work = self._running is not None and not (self.cancelled or self.closed)
        return at_work and not self._not_renewed and self._tickets.end_soon

    def renew_tickets(self) -> None:
        """Put fresh tickets where the script works, if it still needs them; from any thread. Raises Outage: try again.

        Any other error is for good: it is said in the job log, and the stage keeps what it has until that ends.
        """
        with self._renewing:
            if not self.needs_tickets:
                return
            try:
                self._tickets.renew(self._login.node)
            except Outage:
                raise
            except BridgeError as error:
                self._not_renewed = True
                self._tell_of_the_end(error)

    def _tell_of_the_end(self, error: BridgeError) -> None:
        reference = error.reference or self.book.reference
        log.warning("login_tickets.not_renewed", run_id=self.book.run.run_id, code=error.code, reference=reference)
        placed = self._tickets.placed
        if placed is not None:
            until = f"{placed.end:%F %T} UTC"
            self.feed.note(f"Tickets on {placed.host} end at {until} and are not renewed: {error.title} ({error.code})")

    def _environment(self) -> dict[str, str]:
        """What the script's tools need beside a login's environment: where the run's tickets are, if it has any."""
        grant = self.book.run.grant
        tickets = {"KRB5CCNAME": login_ccache(grant)} if grant.cluster.login_targets else {}
        return {"TMPDIR": self._where.scratch, **tickets}

    def interrupt(self) -> None:
        """End the script's process group."""
        with self._lock:
            running = self._running
        if running is not None:
            running.stop(KILL_GRACE_SECONDS)


class PrepareStage(StageTask):
    """Makes the run's directories and puts its tickets on the login node."""

    def __init__(
        self,
        book: StageBook,
        login: LoginSource,
        crew: Crew,
        where: Places,
        tickets: LoginTickets,
        done: Callable[[], None],
    ) -> None:
        super().__init__(book, login, crew)
        self._where = where
        self._tickets = tickets
        self._done = done

    def work(self, node: LoginNode) -> None:
        """Check who we are there, then make workspace and tickets ready."""
        grant = self.book.run.grant
        self.book.advance(StageState.RUNNING)
        host = self._check_account(node)
        made = node.workspace(self.book.run.run_id, grant.cluster.builds_root, grant.cluster.cache_root)
        if (made.builds_dir, made.private_dir) != (self._where.builds_dir, self._where.private_dir):
            raise Defect(
                "workspace.elsewhere", "The login agent made other directories than the bridge expects.", "Update both."
            )
        self.feed.note(f"Workspace ready on {host}: {made.builds_dir}")
        placed = self._tickets.put(node)
        if placed is not None and placed.login_until is not None:
            self.feed.note(f"Your own login on {host} stays and serves, until {placed.login_until:%F %T} UTC")
        elif placed is not None:
            services = ", ".join(ticket.server for ticket in placed.bundle.tickets)
            self.feed.note(f"Tickets on {host} until {placed.end:%H:%M:%S} UTC: {services}")
        self._done()
        self.end(StageState.ENDED, Outcome.OK, 0)

    def interrupt(self) -> None:
        """Let it finish: it takes moments, and cleanup undoes it."""

    def _check_account(self, node: LoginNode) -> str:
        """T17, T18: the account on the other side must be the one that was granted, down to its uid. Gives its host."""
        hello, account = node.hello(), self.book.run.grant.account
        if (hello.user, hello.uid) != (account.name, account.uid):
            raise Defect(
                "login.wrong_account",
                "The login node gave the bridge another account than policy granted.",
                "Stop the bridge and compare the login node's directory with the bridge's.",
                user=hello.user,
                uid=hello.uid,
            )
        return hello.host


class InterruptedStage(StageTask):
    """A stage on the login node that an earlier process began: it ended with that process's connection."""

    def work(self, node: LoginNode) -> None:
        """Say so."""
        raise Outage(
            "stage.interrupted",
            "The bridge was restarted while this stage ran on the login node.",
            "The runner may try the stage again; otherwise retry the job.",
        )

    def interrupt(self) -> None:
        """There is nothing to end."""
