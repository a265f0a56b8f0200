"""The access matrix: every GitLab user of a bundle in every representative situation, allowed with what, or why not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from bridge.model import EvidenceLevel, PosixAccount
from bridge.policy.board import Board
from bridge.policy.bundle import Bundle
from bridge.policy.grid import Grid, Outcome
from bridge.policy.linked import NO_LINKS
from bridge.policy.merging import merged
from bridge.policy.pairings import Pairing, people_of
from bridge.policy.reach import Reach, TooWide, own
from bridge.policy.reading import Rule, rules
from bridge.policy.rehearsal import Stage, Subject
from bridge.policy.situations import Choice, Space, shown, space
from bridge.policy.truth import truths
from bridge.register import Register

MOST_SITUATIONS: Final = 2**20
"""Above this the matrix is over a selection of the situations."""
SELECTED: Final = 4096
_MOST_CELLS: Final = 2**26
"""Situations times kinds of people: some hundred MiB."""

_JOB_TOKEN: Final = json.dumps(EvidenceLevel.INTROSPECTED.value)


@dataclass(frozen=True, slots=True)
class Person:
    """A row of the matrix: a GitLab user, and one account that their jobs may run as."""

    pairing: Pairing
    cells: Mapping[Outcome, int] = field(repr=False)
    """Situations of the matrix's board by outcome.

    People who look alike share it. A situation that can not be, or in which the user's jobs run as another account, is
    in none of them.
    """

    @property
    def subject(self) -> Subject:
        """The user and the account."""
        return self.pairing.subject

    def outcome(self, number: int) -> Outcome | None:
        """The decision in situation ``number``; None where there is none, see ``cells``."""
        return next((outcome for outcome, cells in self.cells.items() if cells >> number & 1), None)

    def allowed(self) -> int:
        """The situations in which the user's jobs run as this account."""
        return sum(cells for outcome, cells in self.cells.items() if outcome.allowed)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Who may do what in which situation."""

    bundle: Bundle
    stage: Stage
    space: Space
    board: Board
    possible: int = field(repr=False)
    """The situations that can be: a job token alone does not show a protected branch."""
    people: tuple[Person, ...]

    @property
    def complete(self) -> bool:
        """Whether the situations are all combinations of the values tried, or a selection."""
        return self.board.selection is None

    @property
    def pairs(self) -> int:
        """How many decisions it holds."""
        return len(self.people) * self.possible.bit_count()


def matrix(
    bundle: Bundle,
    today: date,
    *,
    directory: Mapping[str, PosixAccount] | None = None,
    register: Register = NO_LINKS,
    most: int = MOST_SITUATIONS,
) -> Matrix:
    """The matrix of ``bundle``; ``today`` is the day of the usual job.

    ``directory`` has the accounts with their groups; without it, belonging to a group is part of a situation.
    ``register`` has the links that people made. Where there are more than ``most`` situations, it is over a selection.
    """
    return matrices([bundle], today, directory=directory, register=register, most=most)[0]


def matrices(
    bundles: Sequence[Bundle],
    today: date,
    *,
    directory: Mapping[str, PosixAccount] | None = None,
    register: Register = NO_LINKS,
    most: int = MOST_SITUATIONS,
) -> tuple[Matrix, ...]:
    """One matrix for each bundle, over the same situations and with the same links, so that they can be compared."""
    all_rules = [rules(bundle) for bundle in bundles]
    first = space(bundles, itertools.chain.from_iterable(all_rules), today, ask_groups=directory is None)
    pairings = [people_of(bundle, directory, register) for bundle in bundles]
    reaches = [_reach(first, Stage.of(bundle, today), some) for bundle, some in zip(bundles, all_rules, strict=True)]
    subjects = [[pairing.subject for pairing in some] for some in pairings]
    where = merged(first, list(zip(bundles, reaches, subjects, strict=True)))
    reaches = [Reach(where, reach.stage, reach.truths) for reach in reaches]
    sides = list(zip(reaches, subjects, strict=True))
    board = _board(where, sides, min(most, _MOST_CELLS // _looks(sides)))
    possible = _possible(where, board)
    grids = (Grid(bundle, register, reach, board, possible) for bundle, reach in zip(bundles, reaches, strict=True))
    return tuple(
        Matrix(bundle, reach.stage, where, board, possible, _people(grid, some))
        for bundle, reach, some, grid in zip(bundles, reaches, pairings, grids, strict=True)
    )


def _people(grid: Grid, pairings: Iterable[Pairing]) -> tuple[Person, ...]:
    return tuple(Person(pairing, grid.row(pairing)) for pairing in pairings)


def _looks(sides: Iterable[tuple[Reach, Sequence[Subject]]]) -> int:
    """How many kinds of people policies can tell apart; at least 1."""
    kinds = [{tuple(truth.looks(one) for truth in reach.truths.values()) for one in people} for reach, people in sides]
    return max(1, sum(map(len, kinds)))


def _reach(where: Space, stage: Stage, some: Iterable[Rule]) -> Reach:
    return Reach(where, stage, truths(some, where, stage))


def _board(where: Space, sides: Sequence[tuple[Reach, Sequence[Subject]]], most: int) -> Board:
    """All situations where there are at most ``most``, else those that tell most: near where each permit decides."""
    if where.combinations() <= most:
        return Board.full(where.variables)
    found: dict[tuple[str, ...], Choice] = {}
    for choice in itertools.chain.from_iterable(_telling(reach, people) for reach, people in sides):
        found.setdefault(tuple(choice[variable.name] for variable in where.variables), choice)
        if len(found) >= min(most, SELECTED):
            break
    return Board.of(where.variables, tuple(found.values()))


def _possible(where: Space, board: Board) -> int:
    cells = board.all
    for mask in (mask for value, mask in board.masks.get("evidence", {}).items() if value == _JOB_TOKEN):
        for variable in where.variables:
            value = shown(where, variable)
            if value is not None:
                cells &= ~mask | board.masks[variable.name][value]
    return cells


def _telling(reach: Reach, people: Sequence[Subject]) -> Iterator[Choice]:
    """First where each permit decides, then all that differs from these in one value, then in what a policy sees."""
    some = [truth.rule for truth in reach.truths.values()]
    forbids = {rule.policy_id: False for rule in some if not rule.permits}
    backgrounds = [reach.usual()]
    for rule in some:
        if rule.permits:
            backgrounds += _decides(reach, rule, forbids, people)
    yield from backgrounds
    for background in backgrounds:
        for variable in reach.space.variables:
            yield from (background | {variable.name: value} for value in variable.values)
    for background in backgrounds:
        for truth in reach.truths.values():
            seen = [variable.name for variable in reach.space.of(truth.rule)]
            yield from (background | {name: choice[name] for name in seen} for choice in own(reach.space, truth))


def _decides(
    reach: Reach, rule: Rule, forbids: Mapping[str, bool], people: Sequence[Subject]
) -> Iterator[dict[str, str]]:
    try:
        found = reach.find({rule.policy_id: True, **forbids}, people)
    except TooWide:
        return
    if found is not None:
        yield dict(found[1])
