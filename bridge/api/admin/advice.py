"""What web works out about bundles by itself: for people who write and review them. Nothing is decided by it.

Files come from the broker, or from the tables and are hashed again; the work is done in threads of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from bridge.api.admin.entry import reading
from bridge.api.callers import Asker
from bridge.audit.ledger import View
from bridge.decisions import KeptDecision
from bridge.errors import BridgeError, Defect, RequestRefused
from bridge.listing import RunFilter
from bridge.model import Run, SlurmRequest
from bridge.people.bundling import accepted
from bridge.policy.analysis import matrix
from bridge.policy.bundle import Bundle, checked_bundle
from bridge.policy.cases import ALLOWED, Situation
from bridge.policy.difference import difference
from bridge.policy.explain import Explainer
from bridge.policy.files import content_hash
from bridge.policy.lint import lint
from bridge.policy.past import Answer, Recorded, replay
from bridge.policy.question import Question
from bridge.policy.summary import Summary, guards, summaries
from bridge.policy.trial import run_cases
from bridge.policy.worktime import OutOfTimeError, within
from bridge.register import Register

T = TypeVar("T")

Files = Mapping[str, str]

AT_ONCE: Final = 2
"""Matrices are worked out side by side; each takes a processor for a while (T38)."""

WORK_SECONDS: Final = 30.0
"""How long one may take it; less than clients wait for an answer."""

MOST_REPLAYED: Final = 2000

ACTIVE: Final = "active"

_ASKED: Final = tuple(one.name for one in dataclasses.fields(SlurmRequest))


@dataclass(frozen=True, slots=True)
class Found:
    """Bundles that a question is about, by the names that it calls them."""

    active: Files
    active_hash: str
    others: Mapping[str, Files]

    def files(self, name: str) -> Files:
        """The files of one of them: ``active``, or a hash."""
        return self.active if name in (ACTIVE, self.active_hash) else self.others[name]


async def found(person: Asker, *names: str) -> Found:
    """Return the bundle in force and those of these hashes, for callers with a role; asks the broker once.

    Raises NotFound ``policy.no_bundle``, Defect ``policy.content``.
    """
    answer = await person.ask("policy_active")
    active, active_hash = answer["files"], answer["active"]["content_hash"]
    wanted = {name for name in names if name not in (ACTIVE, active_hash)}
    others = await reading(person, lambda view: {name: _kept(view, name) for name in wanted}) if wanted else {}
    return Found(active, active_hash, others)


async def kept(person: Asker, wanted: str) -> Files:
    """Return the files of a bundle by its hash; raises NotFound ``policy.no_bundle``, Defect ``policy.content``."""
    return await reading(person, lambda view: _kept(view, wanted))


def _kept(view: View, wanted: str) -> Files:
    files = view.bundle_files(wanted)
    if content_hash(files) != wanted:
        raise Defect(
            "policy.content",
            "The files that the database has of a policy bundle are not those of its hash.",
            "Stop the bridge and look for who changed the database; then report the reference.",
            wanted=wanted,
        )
    return files


async def worked_out(request: Request, work: Callable[[], T]) -> T:
    """Return what ``work`` comes to, in a thread, when it is its turn; raises RequestRefused ``advice.too_long``."""
    limiter: CapacityLimiter = request.app.state.advice

    def in_time() -> T:
        try:
            with within(WORK_SECONDS):
                return work()
        except OutOfTimeError:
            raise RequestRefused(
                "advice.too_long",
                f"This could not be worked out within {WORK_SECONDS:.0f} seconds.",
                "Ask it of the bundle on a machine of your own, with the commands of 'ci-bridge policy'.",
            ) from None

    return await to_thread.run_sync(in_time, limiter=limiter)


def validation(files: Files) -> dict[str, Any]:
    """Say all that is wrong with a bundle, or strange."""
    try:
        bundle = checked_bundle(accepted(files))
    except BridgeError as error:
        problems = error.context.get("problems") or (error.title,)
        return {"ok": False, "content_hash": content_hash(files), "problems": problems, "findings": []}
    findings = [
        {"severity": one.severity.value, "check": one.check, **asdict(one.problem)}
        for one in lint(bundle, datetime.now(UTC))
    ]
    return {"ok": True, "content_hash": bundle.content_hash, "problems": [], "findings": findings}


def trial(files: Files) -> dict[str, Any]:
    """Decide a bundle's cases by it."""
    bundle = checked_bundle(accepted(files))
    results = run_cases(bundle)
    cases = [{"name": one.name, "passed": one.passed, "differences": one.differences} for one in results]
    return {"ok": all(one.passed for one in results), "content_hash": bundle.content_hash, "cases": cases}


async def links(person: Asker) -> Register:
    """Return the links that people made, for callers with a role."""
    return await reading(person, lambda view: view.register())


def compared(old: Files, new: Files, register: Register) -> dict[str, Any]:
    """Say what one bundle changes over another, in words and as data."""
    before, after = checked_bundle(old), checked_bundle(accepted(new))
    what = difference(before, after, _today(after), register=register)
    return what.to_json() | {"lines": what.lines()}


def access(files: Files, register: Register, wanted: Callable[[Summary], bool]) -> dict[str, Any]:
    """Say who may do what by a bundle: the rows of the access matrix that are wanted."""
    bundle = checked_bundle(files)
    whole = matrix(bundle, _today(bundle), register=register)
    return {
        "content_hash": bundle.content_hash,
        "complete": whole.complete,
        "decisions": whole.pairs,
        "people": [asdict(one) for one in summaries(whole) if wanted(one)],
        "forbids": guards(whole),
    }


def recorded(view: View, days: int) -> tuple[list[Recorded], Register]:
    """Return what was asked within so many days and what was answered, and the links that there are.

    First the runs that were let in, whose grants tell all of the answer, then the refusals; newest first.
    """
    since = datetime.now(UTC) - timedelta(days=days)
    rows = view.list_runs(RunFilter(since=since), None, MOST_REPLAYED)
    refused = [one for one in view.decisions(since, MOST_REPLAYED) if one.code != ALLOWED]
    let_in = [_recorded(view.run(row.run_id)) for row in rows]
    return [*let_in, *map(_refused, refused)], view.register()


def replayed(past: tuple[list[Recorded], Register], files: Files) -> dict[str, Any]:
    """Say which of these decisions a bundle would turn."""
    questions, register = past
    bundle = checked_bundle(files)
    result = replay(questions, bundle, register)
    turns = [
        {
            "reference": turn.recorded.reference,
            "account": turn.recorded.question.account.name,
            "user_id": turn.recorded.question.identity.user_id,
            "project_id": turn.recorded.question.identity.project_id,
            "before": turn.recorded.answer.code,
            "after": turn.answer.code,
            "differences": turn.differences,
        }
        for turn in result.turns
    ]
    return {
        "content_hash": bundle.content_hash,
        "asked": result.asked,
        "complete": len(questions) < MOST_REPLAYED,
        "counts": result.counts(),
        "turns": turns,
    }


def explained(files: Files, case: Situation) -> dict[str, Any]:
    """Say how a bundle answers a made-up job, and why."""
    return Explainer(checked_bundle(files)).explain_case(case).to_json()


def explained_decision(files: Files, decision: KeptDecision, sha256: str | None) -> dict[str, Any]:
    """Say how a bundle answers a question that was asked, and why; ``sha256`` is what the audit log says of it.

    Raises Defect ``decision.changed`` for a question that is not the one on record.
    """
    if hashlib.sha256(decision.question).hexdigest() != sha256:
        raise Defect(
            "decision.changed",
            "The question that was kept is not the one that the audit log tells of.",
            "Look for who changed the database; then report the reference.",
        )
    return Explainer(checked_bundle(files)).explain(Question.from_json(decision.question)).to_json()


def question_of(run: Run) -> Question:
    """Return the question that the run's grant answered, with what it got in place of what it asked."""
    grant = run.grant
    plan = asdict(grant.plan)
    asked = SlurmRequest(**{name: plan[name] for name in _ASKED if name in plan})
    return Question(grant.identity, grant.account, grant.cluster.name, asked, run.created_at)


def _recorded(run: Run) -> Recorded:
    grant = run.grant
    return Recorded(
        run.run_id,
        question_of(run),
        Answer(ALLOWED, grant.policy_ids, grant.limits.names, plan=grant.plan),
    )


def _today(bundle: Bundle) -> Any:
    return bundle.calendar.day(datetime.now(UTC))


def _refused(decision: KeptDecision) -> Recorded:
    return Recorded(decision.reference, Question.from_json(decision.question), Answer(decision.code))
