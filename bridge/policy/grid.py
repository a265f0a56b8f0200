"""Decides all situations of a board at once, for one bundle: policy by policy, as sets of situations.

Cedar's part is combined from ``truth``; what follows it (envelopes, evidence, what the job asks for) is asked of
``Engine`` itself, once for each combination of permits and request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bridge.model import Limits
from bridge.policy.board import Board
from bridge.policy.bundle import Bundle
from bridge.policy.engine import Engine
from bridge.policy.pairings import DECIDE, Pairing
from bridge.policy.reach import Reach
from bridge.policy.reading import Rule
from bridge.policy.rehearsal import AFTER_POLICIES, Subject, settle
from bridge.policy.worktime import tick
from bridge.register import Register


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, without the job that it is for."""

    code: str
    """``allowed``, or the code of the refusal."""
    policies: tuple[str, ...] = ()
    """``@id`` of the deciding permits or forbids, sorted."""
    limits: Limits | None = None

    @property
    def allowed(self) -> bool:
        """Whether the job runs."""
        return self.limits is not None


class Grid:
    """One bundle's side of a board, and what is known of people who look alike to its policies."""

    def __init__(self, bundle: Bundle, register: Register, reach: Reach, board: Board, possible: int) -> None:
        self._bundle = bundle
        self._register = register
        self._engine = Engine(bundle)
        self._stage = reach.stage
        self._board = board
        self._possible = possible
        self._tables = tuple(reach.truths.values())
        self._parts = [self._apart(truth.variables) for truth in self._tables]
        self._requests = self._apart(AFTER_POLICIES)
        self._deciding = self._apart(DECIDE)
        self._masks: dict[tuple[int, object], tuple[int, int]] = {}
        self._known: dict[object, Mapping[Outcome, int]] = {}
        self._rows: dict[object, Mapping[Outcome, int]] = {}

    def row(self, pairing: Pairing) -> Mapping[Outcome, int]:
        """The situations of one user and account by outcome; who looks alike gets the same object."""
        tick()
        looks = tuple(truth.looks(pairing.subject) for truth in self._tables)
        parts = tuple(self._applying(pairing))
        if (looks, parts) not in self._rows:
            self._rows[looks, parts] = self._joined(looks, pairing.subject, parts)
        return self._rows[looks, parts]

    def _applying(self, pairing: Pairing) -> Iterator[tuple[int, str | None]]:
        """Where the user's jobs run as this account, and with which code the account itself is refused there."""
        for number, part in enumerate([self._board.all] if pairing.plain else self._deciding):
            question = self._stage.question(pairing.subject, self._board.first(part))
            if pairing.used_by(self._bundle.accounts, question.identity):
                yield (-1 if pairing.plain else number), pairing.refused(self._bundle, self._register, question)

    def _joined(
        self, looks: object, subject: Subject, parts: Iterable[tuple[int, str | None]]
    ) -> Mapping[Outcome, int]:
        found: dict[Outcome, int] = {}
        for number, code in parts:
            part = self._possible & (self._board.all if number < 0 else self._deciding[number])
            for outcome, cells in ({Outcome(code): part} if code else self._decided(looks, subject)).items():
                if cells & part:
                    found[outcome] = found.get(outcome, 0) | cells & part
        return found

    def _decided(self, looks: object, subject: Subject) -> Mapping[Outcome, int]:
        if looks not in self._known:
            self._known[looks] = dict(self._decide(subject))
        return self._known[looks]

    def _decide(self, subject: Subject) -> Iterator[tuple[Outcome, int]]:
        where, failing = [], 0
        for number, truth in enumerate(self._tables):
            holds, fails = self._mask(number, subject)
            where.append((truth.rule, holds))
            failing |= fails
        if failing:
            yield Outcome("policy.evaluation_failed"), failing
        for forbids, cells in _split(self._board.all & ~failing, (one for one in where if not one[0].permits)).items():
            if forbids:
                yield Outcome("policy.forbidden", forbids), cells
                continue
            for permits, some in _split(cells, (one for one in where if one[0].permits)).items():
                if permits:
                    yield from self._settle(subject, permits, some)
                else:
                    yield Outcome("policy.no_permit"), some

    def _settle(self, subject: Subject, permits: tuple[str, ...], cells: int) -> Iterator[tuple[Outcome, int]]:
        found: dict[Outcome, int] = {}
        for request in self._requests:
            tick()
            some = cells & request
            if some:
                code, limits = settle(self._engine, self._stage.question(subject, self._board.first(some)))
                outcome = Outcome(code, permits, limits)
                found[outcome] = found.get(outcome, 0) | some
        yield from found.items()

    def _mask(self, number: int, subject: Subject) -> tuple[int, int]:
        """Where a policy holds, and where it can not be evaluated."""
        truth = self._tables[number]
        key = (number, truth.looks(subject))
        if key not in self._masks:
            parts = [(cells, self._board.first(cells)) for cells in self._parts[number]]
            truth.learn((subject, situation) for _, situation in parts)
            holds = fails = 0
            for cells, situation in parts:
                tick()
                holds |= cells if truth.holds(subject, situation) else 0
                fails |= cells if truth.fails(subject, situation) else 0
            self._masks[key] = holds, fails
        return self._masks[key]

    def _apart(self, names: Iterable[str]) -> Sequence[int]:
        return tuple(self._board.apart(sorted(set(names) & self._board.masks.keys())).values())


def _split(cells: int, masks: Iterable[tuple[Rule, int]]) -> Mapping[tuple[str, ...], int]:
    """``cells`` by which of the policies hold there."""
    parts: dict[tuple[str, ...], int] = {(): cells}
    for rule, mask in masks:
        tick()
        finer: dict[tuple[str, ...], int] = {}
        for names, some in parts.items():
            if some & mask:
                finer[(*names, rule.policy_id)] = some & mask
            if some & ~mask:
                finer[names] = some & ~mask
        parts = finer
    return {names: some for names, some in parts.items() if some}
