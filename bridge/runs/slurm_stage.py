"""A stage as a Slurm job: held, recorded, released, followed to its end; nothing is ever submitted twice.

sbatch has no idempotency key. So the job's name is the stage's, at most one job of a name can run (singleton), and a
job runs only once its id is recorded. ``work`` can be begun again at any point, by this process after a lost connection
or by the next one after a crash: it looks for the job by name before it does anything.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Final

from bridge.cluster import options
from bridge.cluster.node import LoginNode
from bridge.cluster.poller import Poller
from bridge.cluster.slurm import JobState, Slurm
from bridge.crew import Crew
from bridge.errors import BridgeError, Outage, RequestRefused
from bridge.lifecycle import FINAL
from bridge.model import Stage, StageState
from bridge.runs.book import StageBook
from bridge.runs.endings import exit_code, trouble
from bridge.runs.feed import Feed, FeedClosed, outcome_of
from bridge.runs.joblog import JobLog
from bridge.runs.news import News
from bridge.runs.places import Places, node_ccache
from bridge.runs.rounds import Cancel, Change, Changes, LogLost, Round, Source
from bridge.runs.task import LoginSource, StageTask
from runner.wire import Outcome

RECONNECT_SECONDS: Final = 600
"""How long login node or Slurm may be away before a job in Slurm is given up as an outage; cleanup cancels it then."""

SUBMIT_SECONDS: Final = 60
"""The same, while no job is on record: then nothing is lost by a new start."""

CONFIRM_SECONDS: Final = 90
"""How long Slurm may take to confirm a cancel: KillWait, and an epilog."""

MISSING_SECONDS: Final = 60
"""How long Slurm may keep saying that it does not know a job: slurmdbd hears of one later than slurmctld forgets it."""

MISSING_GAP_SECONDS: Final = 30
"""Two such answers further apart than this are two tales: in between Slurm knew the job, and nothing had changed."""

_FINAL_OUTAGES: Final = frozenset({"stage.script_lost", "stage.lost", "slurm.cancel_unconfirmed", "slurm.job_unknown"})
"""What another try can't mend."""

_NO_REASON: Final = frozenset({"", "None"})
"""What Slurm says of a job that it has not looked at yet."""


class SlurmStage(StageTask):
    """Runs the user's script as a Slurm job of the account."""

    def __init__(
        self,
        book: StageBook,
        login: LoginSource,
        crew: Crew,
        *,
        script: bytes | None,
        where: Places,
        wrapper: str,
        poller: Poller,
        feed: Feed | None = None,
        offset: int = 0,
        fresh: bool = False,
    ) -> None:
        """Take the stage's parts. ``script`` is None for a stage that an earlier process began; then ``offset`` is the
        number of log bytes that the executor has. ``fresh``: nobody has tried to submit the stage's job before."""
        super().__init__(book, login, crew, feed)
        self._script = script
        self._where = where
        self._wrapper = wrapper
        self._poller = poller
        self._offset = offset
        self._fresh = fresh
        self._submissions = 0
        self._round: Round | None = None
        self._recorded = book.stage.state
        self._shown: JobState | None = None
        self._gives_up: float | None = None
        self._missing: tuple[float, float] | None = None

    def interrupt(self) -> None:
        """Have the job cancelled by whoever follows it."""
        current = self._round
        if current is not None:
            current.changes.put(Cancel())
        self.wake()

    def outlives(self, error: BridgeError) -> bool:
        """Go on after an outage, for a while: neither the job nor what is on record of it depends on what is away."""
        if not isinstance(error, Outage) or error.code in _FINAL_OUTAGES:
            return False
        now = time.monotonic()
        if self._gives_up is None:
            self._gives_up = now + (SUBMIT_SECONDS if self._recorded is StageState.INTENDED else RECONNECT_SECONDS)
        return now < self._gives_up

    def go_on(self) -> None:
        """Hear what there is to hear of a job that is followed already, or bring it there."""
        if self._round is None:
            self.work(self._login.node)
        else:
            self._attend(self._round)

    def let_go(self) -> None:
        """Stop listening, where this process lets go while the stage rests."""
        if self._round is not None:
            # Where its connection is lost, nobody is listened to any more.
            with suppress(BridgeError):
                self._leave(self._round)

    def work(self, node: LoginNode) -> None:
        """Bring the job from wherever it is to its end, or to where there is nothing to do but wait for Slurm."""
        slurm = Slurm(node)
        stage = self._stage()
        self._recorded = stage.state
        if stage.state in FINAL:
            self._tell_again(node, slurm, stage)
            return
        if stage.slurm_job_id is None:
            stage = self._held(node, slurm, stage)
        job_id = stage.slurm_job_id
        if job_id is None:
            return
        if stage.state is StageState.HELD:
            self._release(slurm, job_id)
        self._attend(self._begin_round(node, slurm, job_id))

    def _tell_again(self, node: LoginNode, slurm: Slurm, stage: Stage) -> None:
        """Tell of a stage that ended before this process took it up: the rest of its log, and its end."""
        if stage.slurm_job_id is not None:
            rest = JobLog(self.crew, self.feed, self._offset)
            try:
                rest.begin(node, self._where.log(stage.name))
                rest.finish()
            finally:
                rest.leave()
                self._offset = rest.offset
        if stage.state is StageState.CANCELLED:
            self.feed.end(Outcome.CANCELLED, stage.exit_code)
            return
        if stage.state is StageState.LOST or stage.slurm_job_id is None:
            raise Outage(
                "stage.lost", "The bridge lost this stage.", "Retry the job; the audit log has what is known of it."
            )
        job = slurm.states([stage.slurm_job_id]).get(stage.slurm_job_id)
        error = None if job is None else trouble(job)
        if error is not None:
            self.feed.fail(error, self.book.reference)
            return
        self.feed.end(Outcome.OK if stage.exit_code == 0 else Outcome.SCRIPT_FAILED, stage.exit_code)

    def _stage(self) -> Stage:
        with self.book.ledger.read() as view:
            return view.stage(self.book.run.run_id, self.book.stage.invocation)

    def _held(self, node: LoginNode, slurm: Slurm, stage: Stage) -> Stage:
        """Find the job that an earlier try may have left, or submit one; held in any case, and on record."""
        job_id = None if self._fresh else self._adopt(slurm, stage)
        if self.cancelled and job_id is None:
            self.end(StageState.CANCELLED, Outcome.CANCELLED)
            return stage
        if job_id is None:
            self._fresh = False
            job_id = self._submit(node, slurm, stage)
        stage = self._advance(StageState.HELD, slurm_job_id=job_id)
        # A job that is on record is never submitted again, and scripts are large.
        self._script = None
        return stage

    def _adopt(self, slurm: Slurm, stage: Stage) -> int | None:
        found = slurm.find(stage.slurm_name)
        live = [job for job in found if not job.ended]
        for twin in live[1:]:
            slurm.cancel(twin.job_id)
        adopted = live[:1] or list(found[-1:])
        return adopted[0].job_id if adopted else None

    def _advance(self, state: StageState, *, slurm_job_id: int | None = None, node: str | None = None) -> Stage:
        stage = self.book.advance(state, slurm_job_id=slurm_job_id, node=node)
        self._recorded = stage.state
        return stage

    def _submit(self, node: LoginNode, slurm: Slurm, stage: Stage) -> int:
        if self._script is None:
            raise Outage(
                "stage.script_lost",
                "The bridge was restarted before the job reached Slurm.",
                "Retry the job: nothing of it has run.",
            )
        script = self._where.script(stage.name)
        node.put(script, self._script, 0o600)
        self._submissions += 1
        grant = self.book.run.grant
        identity = grant.identity
        argv = options.to_argv(
            grant.plan,
            job_name=stage.slurm_name,
            comment=f"ci-bridge project={identity.project_id} pipeline={identity.pipeline_id} job={identity.job_id}",
            private_dir=self._where.private_dir,
            output=self._where.log(stage.name),
            command=[self._wrapper, script],
            ccache=node_ccache(grant) if grant.cluster.node_targets else None,
        )
        return slurm.submit_held(argv)

    def _release(self, slurm: Slurm, job_id: int) -> None:
        """Let the held job go, and record it. After a crash it may be released, or over, already."""
        if self.cancelled:
            slurm.cancel(job_id)
        else:
            try:
                slurm.release(job_id)
            except RequestRefused:
                state = slurm.states([job_id]).get(job_id)
                if state is None or not (state.started or state.ended):
                    raise
        self._advance(StageState.RELEASED)
        plan = self.book.run.grant.plan
        self.feed.note(
            f"Slurm job {job_id}: partition {plan.partition}, {plan.nodes} node(s), at most {plan.time_minutes} min"
        )

    def _begin_round(self, node: LoginNode, slurm: Slurm, job_id: int) -> Round:
        """Listen to Slurm and to the job's log from now on."""
        changes: Changes = News()
        hear = partial(self._hear, changes)
        log = JobLog(
            self.crew,
            self.feed,
            self._offset,
            on_output=self._poller.hint,
            on_lost=lambda error: hear(LogLost(error)),
        )
        self._round = current = Round(slurm, job_id, log, changes)
        if self.cancelled:
            changes.put(Cancel())
        try:
            log.begin(node, self._where.log(self.book.stage.name))
            current.watch = self._poller.watch(job_id, Source(node), hear, hear)
        except BridgeError:
            self._leave(current)
            raise
        return current

    def _hear(self, changes: Changes, change: Change) -> None:
        changes.put(change)
        self.wake()

    def _attend(self, current: Round) -> None:
        """Hear what comes of the job. At its end, or where the connection fails, the round is over."""
        self.rests = False
        try:
            last = self._watch(current)
            if last is None:
                self.rests = True
                return
            current.log.finish()
        finally:
            if not self.rests:
                self._leave(current)
        self._end(current.slurm, last)

    def _leave(self, current: Round) -> None:
        """Listen no more; what comes next goes on behind what the feed has got."""
        self._round = None
        if current.watch is not None:
            current.watch.close()
        try:
            current.log.leave()
        finally:
            self._offset = current.log.offset

    def _watch(self, current: Round) -> JobState | None:
        """Return the job's last state, or None where it goes on and there is no news."""
        while True:
            if current.confirm_by is not None and time.monotonic() > current.confirm_by:
                raise _cancel_unconfirmed(current.job_id)
            change = current.changes.take(self.crew.rest_seconds)
            if change is None:
                if self.closed:
                    raise FeedClosed
                if current.confirm_by is None:
                    return None
                continue
            if isinstance(change, Cancel):
                current.confirm_by = current.confirm_by or time.monotonic() + CONFIRM_SECONDS
                current.slurm.cancel(current.job_id)
                self._poller.hint()
            elif isinstance(change, LogLost):
                raise change.error
            elif isinstance(change, BridgeError):
                self._require_known(change)
            else:
                self._missing = None
                self._show(change)
                if change.ended:
                    return change
                self._gives_up = None

    def _require_known(self, error: BridgeError) -> None:
        """Pass over what the next look at Slurm may mend; raise where it can't, or has not for too long."""
        if error.code.startswith(("login.", "ssh.")):
            raise error
        if error.code != "slurm.job_unknown":
            return
        now = time.monotonic()
        first, last = self._missing or (now, now)
        self._missing = (now if now - last > MISSING_GAP_SECONDS else first, now)
        if now - self._missing[0] > MISSING_SECONDS:
            raise error

    def _show(self, job: JobState) -> None:
        """Record what is not on record yet, and tell what has changed since the last look."""
        before, self._shown = self._shown, job
        if job.ended:
            return
        if job.started:
            if self._recorded is not StageState.RUNNING:
                node = ",".join(job.nodes)
                self._advance(StageState.RUNNING, node=node)
                self.feed.note(f"Slurm job {job.job_id} runs on {node}")
                self._poller.hint()
            return
        if self._recorded is not StageState.PENDING:
            self._advance(StageState.PENDING)
        if job.reason not in _NO_REASON and (before is None or before.started or before.reason != job.reason):
            self.feed.note(f"Slurm job {job.job_id} is waiting: {job.reason}")

    def _cancel_twins(self, slurm: Slurm, job_id: int) -> None:
        """Cancel what a submission left behind whose reply was lost, and which came to Slurm after we had looked."""
        for job in slurm.find(self.book.stage.slurm_name):
            if job.job_id != job_id and not job.ended:
                slurm.cancel(job.job_id)

    def _end(self, slurm: Slurm, job: JobState) -> None:
        if self._submissions > 1:
            self._cancel_twins(slurm, job.job_id)
        code = exit_code(job)
        if self.cancelled:
            self.feed.note(f"Slurm job {job.job_id} is cancelled; Slurm has confirmed it")
            self.end(StageState.CANCELLED, Outcome.CANCELLED, code)
            return
        error = trouble(job)
        if error is not None:
            self.book.finish(StageState.ENDED, outcome_of(error), exit_code=code, code=error.code)
            self.feed.fail(error, self.book.reference)
            return
        self.feed.note(f"Slurm job {job.job_id} ended with exit code {code}")
        self.end(StageState.ENDED, Outcome.OK if code == 0 else Outcome.SCRIPT_FAILED, code)


def _cancel_unconfirmed(job_id: int) -> Outage:
    return Outage(
        "slurm.cancel_unconfirmed",
        f"Slurm has not confirmed that job {job_id} is cancelled.",
        "Tell the operators of the cluster the job's number.",
    )
