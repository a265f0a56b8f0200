"""The runs that web has in its hands: opened with the broker, staged over SSH, finished on the login node."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from bridge import grants
from bridge.audit.ledger import Ledger
from bridge.audit.record import Phase
from bridge.broker.client import BrokerClient
from bridge.cluster.poller import Poller
from bridge.cluster.pool import LoginPool
from bridge.crew import Crew
from bridge.errors import BridgeError, NotFound, Outage, TokenRefused
from bridge.lifecycle import RUN_TRANSITIONS
from bridge.model import Evidence, Run, RunId, RunState, Stage, StageKind, StageState, TicketBundle
from bridge.references import new_reference
from bridge.runs.book import StageBook
from bridge.runs.feed import Feed
from bridge.runs.finishing import drop_last_cache, finish_on_login_node
from bridge.runs.live_run import LiveRun
from bridge.runs.login_stage import InterruptedStage, LoginStage, PrepareStage
from bridge.runs.login_tickets import LoginTickets, Placed
from bridge.runs.places import places
from bridge.runs.run_records import login_left_record, run_record, stop_record
from bridge.runs.slurm_stage import SlurmStage
from bridge.runs.task import StageTask
from bridge.runs.tickets import RunTickets, read_bundle
from bridge.standing import RegisterCache
from runner.wire import is_user_stage

LINGER_SECONDS: Final = 120.0
"""A run that was stopped is kept this long after its end, so that its executor can still hear why."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What stages are made of."""

    ledger: Ledger
    broker: BrokerClient
    pool: LoginPool
    poller: Poller
    register: RegisterCache
    wrapper: str
    crew: Crew = field(default_factory=lambda: Crew("stage"))


class Runs:
    """Every live run of this process; safe to use from many threads."""

    def __init__(self, workshop: Workshop) -> None:
        self._shop = workshop
        self._lock = threading.Lock()
        self._live: dict[RunId, LiveRun] = {}

    def open(self, evidence: Evidence) -> dict[str, Any]:
        """Have a job admitted; return what the executor needs to know. Raises what refuses it."""
        header, ccache = self._shop.broker.ask("admit", evidence=_plain(evidence))
        grant = grants.from_json(header["grant"].encode())
        bundle = read_bundle(grant, ccache, grant.cluster.ssh_targets)
        run_id, session = RunId(header["run_id"]), str(header["session"])
        with self._shop.ledger.read() as view:
            run = view.run(run_id)
        self._keep(run, session, bundle, evidence.job_token)
        where = places(grant, run_id)
        return {
            "run_id": run_id,
            "session": session,
            "account": grant.account.name,
            "uid": grant.account.uid,
            "principal": bundle.principal,
            "reason": grant.reason,
            "notes": list(grant.notes),
            "policy_ids": list(grant.policy_ids),
            "builds_dir": where.builds_dir,
            "cache_dir": where.cache_dir,
            "cluster": grant.cluster.name,
            "tickets_until": f"{bundle.end:%Y-%m-%dT%H:%M:%SZ}",
            "plan": {key: value for key, value in asdict(grant.plan).items() if value not in (None, False)},
            "reference": header["reference"],
            "job_token_on_nodes": grant.limits.job_token_on_nodes,
        }

    def authenticate(self, run_id: RunId, session: str) -> LiveRun:
        """Return the run for its session secret; raises TokenRefused ``session.invalid``."""
        with self._lock:
            live = self._live.get(run_id)
        if live is not None and hmac.compare_digest(live.session.encode(), session.encode()):
            live.heard = time.monotonic()
            return live
        with suppress(NotFound), self._shop.ledger.read() as view:
            known = view.session(run_id)
            if hmac.compare_digest(known.session_hash, hashlib.sha256(session.encode()).digest()):
                return self._keep(view.run(run_id), session, None)
        raise TokenRefused(
            "session.invalid",
            "The session secret is not that of a live run.",
            "Retry the job in GitLab: a new job gets a new run.",
        )

    def start_stage(self, live: LiveRun, invocation: str, name: str, script: bytes) -> StageTask:
        """Start a stage, or return it where the same call has started it.

        Raises Conflict ``run.ended``, PolicyRefused as ``standing`` does, or what the run was stopped for.
        """
        with live.lock:
            known = live.tasks.get(invocation)
            if known is not None:
                return known
            live.require_open()
            book = StageBook(self._shop.ledger, live.run, _stage(live.run, invocation, name), new_reference())
            recorded = book.intend(script, self._shop.register)
            if recorded is None or recorded.state is StageState.INTENDED:
                task = self._task(live, book, script, fresh=recorded is None)
            else:
                task = self._resumed(live, recorded, 0, 0)
            live.tasks[invocation] = task
        task.start()
        return task

    def stage(self, live: LiveRun, invocation: str, after: int = 0, offset: int = 0) -> StageTask:
        """Return a stage at work. One that an earlier process began is taken up where the executor left off.

        ``after`` is the last frame and ``offset`` the number of log bytes that the executor has.
        Raises NotFound ``stage.unknown``, Conflict ``run.ended``.
        """
        with live.lock:
            known = live.tasks.get(invocation)
            if known is not None:
                return known
            live.require_open()
            with self._shop.ledger.read() as view:
                stage = view.stage(live.run.run_id, invocation)
            task = self._resumed(live, stage, after, offset)
            live.tasks[invocation] = task
        task.start()
        return task

    def finish(self, live: LiveRun) -> dict[str, Any]:
        """End a run: nothing of it runs, and nothing is left on the login node, when this returns.

        Raises Outage where that can't be confirmed now; asking again goes on.
        """
        with live.lock:
            if live.run.state is RunState.ENDED:
                self._forget(live)
                return {"cancelled": [], "complete": True}
            live.ending = live.tickets.ending = True
            tasks = list(live.tasks.values())
        for task in tasks:
            if not task.over:
                # Where its connection is lost, the task knows it already.
                with suppress(Outage):
                    task.cancel(live.stopped)
            task.feed.abandon()
        try:
            node = live.lease.node
        except Outage:
            if not self._never_got_there(live.run):
                raise
            self._let_go(live, self._record_end(live, []))
            return {"cancelled": [], "complete": False}
        finished = finish_on_login_node(self._shop.ledger, live.run, node, tasks)
        with live.lock:
            live.run = self._record_end(live, finished.cancelled, login_left=finished.login_left)
        drop_last_cache(self._shop.ledger, live.run, node, finished)
        self._let_go(live, live.run)
        return {"cancelled": finished.cancelled, "complete": True}

    def condemn(self, live: LiveRun, why: BridgeError) -> None:
        """Put on record that a run must end though its executor has not asked for it, and cancel its Slurm jobs.

        From here on nothing of it starts; ``finish`` does the rest, as often as it takes. Again is harmless.
        """
        with live.lock:
            if live.ending or live.run.state is RunState.ENDED:
                return
            live.stopped = why.referenced(new_reference())
            live.ending = live.tickets.ending = True
            tasks = [task for task in live.tasks.values() if task.kind is StageKind.SLURM and not task.over]
        for task in tasks:
            task.cancel(live.stopped)
        with self._shop.ledger.begin() as tx:
            tx.append(stop_record(live.run, Phase.INTENT, live.stopped, {}))

    def held(self) -> list[LiveRun]:
        """Return every run that this process holds; those that are over and stopped linger for a while."""
        with self._lock:
            return list(self._live.values())

    def forget_the_stopped(self) -> None:
        """Let go of stopped runs whose executor has had time to hear of it."""
        now = time.monotonic()
        for live in self.held():
            if live.forget_at is not None and live.forget_at <= now:
                self._forget(live)

    def _never_got_there(self, run: Run) -> bool:
        """Whether the run's workspace was never ready, so that an unreachable login node holds nothing that runs."""
        with self._shop.ledger.read() as view:
            on_slurm = any(stage.kind is StageKind.SLURM for stage in view.stages(run.run_id))
        return run.state is RunState.ADMITTED and not on_slurm

    def _let_go(self, live: LiveRun, ended: Run) -> None:
        live.run = ended
        live.lease.close()
        if live.stopped is None:
            self._forget(live)
        else:
            live.forget_at = time.monotonic() + LINGER_SECONDS

    def _forget(self, live: LiveRun) -> None:
        for task in list(live.tasks.values()):
            task.close()
        with self._lock:
            if self._live.get(live.run.run_id) is live:
                del self._live[live.run.run_id]

    def node_of(self, run_id: RunId) -> LiveRun:
        """Return a live run by its id, for a caller that was authenticated otherwise; raises Outage."""
        with self._lock:
            live = self._live.get(run_id)
        if live is None:
            raise Outage(
                "run.not_here",
                "The bridge was restarted, and the run's executor has not come back yet.",
                "Ask again in a moment.",
            )
        live.require_open()
        return live

    def check_ready(self) -> None:
        """Pass where broker and database answer; raises Outage."""
        self._shop.broker.ask("ping")
        with self._shop.ledger.read() as view:
            view.head()

    def close(self) -> None:
        """Let go of everything; Slurm jobs go on, and the next process takes them up."""
        with self._lock:
            lives = list(self._live.values())
        for live in lives:
            for task in list(live.tasks.values()):
                task.close()

    def _keep(self, run: Run, session: str, bundle: TicketBundle | None, job_token: str | None = None) -> LiveRun:
        """Hold a run for its executor. One that has ended is looked at only; a new session takes over the old one's."""
        tickets = RunTickets(self._shop.broker, run, session, bundle)
        lease = self._shop.pool.lease(run.grant.cluster, run.grant.account.name, tickets)
        login_tickets = LoginTickets(run.grant, self._login_tickets(run, session), partial(self._login_left, run))
        live = LiveRun(run, session, lease, tickets, login_tickets, job_token)
        with self._lock:
            old = self._live.get(run.run_id)
            if old is not None and bundle is None and old.session == session:
                lease.close()
                return old
            if run.state is not RunState.ENDED:
                self._live[run.run_id] = live
        if run.state is RunState.ENDED:
            lease.close()
        elif old is not None:
            live.tasks.update(old.tasks)
            old.lease.close()
        return live

    def _task(self, live: LiveRun, book: StageBook, script: bytes, *, fresh: bool) -> StageTask:
        where = places(live.run.grant, live.run.run_id)
        if book.stage.name == "prepare":
            return PrepareStage(
                book, live.lease, self._shop.crew, where, live.login_tickets, lambda: self._prepared(live)
            )
        if book.stage.kind is StageKind.LOGIN:
            return LoginStage(book, live.lease, self._shop.crew, script, where, live.login_tickets)
        return SlurmStage(
            book,
            live.lease,
            self._shop.crew,
            script=script,
            where=where,
            wrapper=self._shop.wrapper,
            poller=self._shop.poller,
            fresh=fresh,
        )

    def _resumed(self, live: LiveRun, stage: Stage, after: int, offset: int) -> StageTask:
        book = StageBook(self._shop.ledger, live.run, stage, new_reference())
        if stage.kind is not StageKind.SLURM:
            return InterruptedStage(book, live.lease, self._shop.crew, Feed(after))
        return SlurmStage(
            book,
            live.lease,
            self._shop.crew,
            script=None,
            where=places(live.run.grant, live.run.run_id),
            wrapper=self._shop.wrapper,
            poller=self._shop.poller,
            feed=Feed(after),
            offset=offset,
        )

    def _login_tickets(self, run: Run, session: str) -> Callable[[], TicketBundle]:
        def fetch() -> TicketBundle:
            _, ccache = self._shop.broker.ask("tickets", run_id=run.run_id, session=session, use="login")
            return read_bundle(run.grant, ccache, run.grant.cluster.login_targets)

        return fetch

    def _login_left(self, run: Run, placed: Placed) -> None:
        with self._shop.ledger.begin() as tx:
            tx.append(login_left_record(run, placed.host, placed.end))

    def _prepared(self, live: LiveRun) -> None:
        with self._shop.ledger.begin() as tx:
            live.run = tx.update_run_state(live.run.run_id, {RunState.ADMITTED, RunState.PREPARED}, RunState.PREPARED)
            tx.append(run_record(live.run, Phase.OK, {"state": RunState.PREPARED.value}))

    def _record_end(self, live: LiveRun, cancelled: list[int], *, login_left: bool = False) -> Run:
        run_id = live.run.run_id
        with self._shop.ledger.begin() as tx:
            now = tx.run(run_id)
            if now.state is RunState.ENDED:
                return now
            ended = tx.update_run_state(run_id, RUN_TRANSITIONS.keys(), RunState.ENDED)
            detail: dict[str, str | int | bool] = {"state": "ended", "cancelled_jobs": len(cancelled)}
            if login_left:
                detail["login_left"] = True
            if live.stopped is None:
                tx.append(run_record(ended, Phase.OK, detail))
            else:
                tx.append(stop_record(ended, Phase.OK, live.stopped, detail))
            return ended


def _stage(run: Run, invocation: str, name: str) -> Stage:
    """Return the stage that is about to be; after_script holds user code too, and runs on the login node."""
    return Stage(
        run_id=run.run_id,
        invocation=invocation,
        name=name,
        kind=StageKind.SLURM if is_user_stage(name) and name != "after_script" else StageKind.LOGIN,
        state=StageState.INTENDED,
        slurm_job_id=None,
        slurm_name=f"ci-{run.run_id}-{name}",
        exit_code=None,
        node=None,
    )


def _plain(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as the broker's socket takes it."""
    return {
        "id_token": evidence.id_token,
        "job_token": evidence.job_token,
        "facts": asdict(evidence.facts),
        "scheduler_parameters": evidence.scheduler_parameters,
        "cluster": evidence.cluster,
    }
