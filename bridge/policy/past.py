"""Asks the questions of the past again, of another bundle: which decisions would come out otherwise, and how.

A question holds all that was known then: the job, the account as the directory had it, and the moment. What the bundle
itself says (rows, teams, floor, policies, limits) is the new one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from bridge.errors import BridgeError
from bridge.model import PosixAccount, SlurmPlan
from bridge.policy.bundle import Bundle
from bridge.policy.cases import ALLOWED
from bridge.policy.engine import Engine
from bridge.policy.linked import NO_LINKS, resolve
from bridge.policy.question import Question
from bridge.policy.worktime import tick
from bridge.register import Register

OTHER_ACCOUNT = "other_account"
"""In place of a code: the job would run as an account that nobody looked up then."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a question was, or would be, answered."""

    code: str
    """``allowed``, the code of the refusal, or ``other_account``."""
    policies: tuple[str, ...] = ()
    """``@id`` of what decided, sorted; empty where that is not on record."""
    limits: tuple[str, ...] = ()
    """Names of the limits that applied together."""
    account: str = ""
    """With ``other_account``: which."""
    plan: SlurmPlan | None = None
    """What the job got; None where it was refused, or where that is not on record."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision of the past."""

    reference: str
    """Of the job's log and the audit record."""
    question: Question
    answer: Answer


@dataclass(frozen=True, slots=True)
class Turn:
    """A decision that would come out otherwise."""

    recorded: Recorded
    answer: Answer
    """The new one."""
    differences: tuple[str, ...]
    """In words, e.g. ``time_minutes: 30 -> 20``."""

    @property
    def loud(self) -> bool:
        """Whether a job that was refused would run."""
        return self.recorded.answer.code != ALLOWED and self.answer.code == ALLOWED

    def line(self) -> str:
        """For people."""
        identity, account = self.recorded.question.identity, self.recorded.question.account
        who = f"user {identity.user_id} as {account.name}, job {identity.job_id} of project {identity.project_id}"
        return f"{self.recorded.reference} {who}: {'; '.join(self.differences)}"


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of all of them."""

    asked: int
    turns: tuple[Turn, ...]
    """In the order of the record."""

    def counts(self) -> dict[str, int]:
        """How often each change of the outcome occurs, e.g. ``allowed -> policy.forbidden``, most frequent first."""
        found: dict[str, int] = {}
        for turn in self.turns:
            before, after = turn.recorded.answer.code, turn.answer.code
            what = f"{before} -> {after}" if before != after else f"{before}, with other limits"
            found[what] = found.get(what, 0) + 1
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def replay(recorded: Iterable[Recorded], bundle: Bundle, register: Register = NO_LINKS) -> Replay:
    """Ask every question of ``recorded`` of ``bundle``, with the links of ``register`` as they are now."""
    engine = Engine(bundle)
    asked, turns = 0, []
    for one in recorded:
        tick()
        asked += 1
        now = answer(engine, one.question, register)
        differences = tuple(_differences(one.answer, now))
        if differences:
            turns.append(Turn(one, now, differences))
    return Replay(asked, tuple(turns))


def answer(engine: Engine, question: Question, register: Register = NO_LINKS) -> Answer:
    """How the engine's bundle answers ``question``, from the person's account on."""
    bundle, then = engine.bundle, _Then(question)
    try:
        resolve(bundle.accounts, then, register, question.identity, bundle.calendar.day(question.at))
        grant = engine.decide(question)
    except _OtherAccountError as other:
        return Answer(OTHER_ACCOUNT, account=other.name)
    except BridgeError as error:
        ids = error.context.get("policy_ids", ())
        return Answer(error.code, tuple(map(str, ids)) if isinstance(ids, tuple) else ())
    return Answer(ALLOWED, grant.policy_ids, grant.limits.names, plan=grant.plan)


class _OtherAccountError(Exception):
    """The person's job would run as another account than it did."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Then:
    """The directory as it was: it knows the one account of the question."""

    def __init__(self, question: Question) -> None:
        self._account = question.account

    def lookup(self, name: str) -> PosixAccount:
        if name != self._account.name:
            raise _OtherAccountError(name)
        return self._account


def _differences(before: Answer, after: Answer) -> Iterator[str]:
    if before.code != after.code:
        by = f" by {', '.join(after.policies)}" if after.policies else f" {after.account}".rstrip()
        yield f"{before.code} -> {after.code}{by}"
        return
    if before.limits and sorted(before.limits) != sorted(after.limits):
        yield f"limits {' and '.join(before.limits)} -> {' and '.join(after.limits)}"
    if before.plan is not None and after.plan is not None:
        was, now = asdict(before.plan), asdict(after.plan)
        yield from (f"{name}: {was[name]} -> {now[name]}" for name in was if was[name] != now[name])
