"""Looks for a situation in which given policies hold and others do not: the question behind every finding.

The search is complete over the values of ``situations`` and gives up loudly where there are too many of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bridge.policy.rehearsal import Stage, Subject
from bridge.policy.situations import Choice, Space, Variable
from bridge.policy.truth import Truth
from bridge.policy.worktime import tick

_MOST_STEPS: Final = 50_000
_MOST_ASKED_AHEAD: Final = 4_096


class TooWide(Exception):
    """There are too many combinations to try them all."""


class Reach:
    """Searches over one space, and keeps what Cedar has answered."""

    def __init__(self, space: Space, stage: Stage, truths: Mapping[str, Truth]) -> None:
        self.space = space
        self.stage = stage
        self.truths = truths

    def find(self, wanted: Mapping[str, bool], subjects: Sequence[Subject]) -> tuple[Subject, Choice] | None:
        """A subject and a situation in which each named policy holds, or does not, as ``wanted``.

        None when there is none; raises TooWide when that could not be found out.
        """
        seen = set()
        for subject in subjects:
            tick()
            looks = tuple(self.truths[name].looks(subject) for name in wanted)
            if looks in seen:
                continue
            seen.add(looks)
            choice = self._search(wanted, subject)
            if choice is not None:
                return subject, choice
        return None

    def usual(self) -> dict[str, str]:
        """Every variable at its usual value."""
        return {variable.name: variable.values[0] for variable in self.space.variables}

    def _search(self, wanted: Mapping[str, bool], subject: Subject) -> Choice | None:
        order = self._order(wanted)
        due = self._due(wanted, order)
        self._ask_ahead(wanted, subject)
        steps = itertools.count()
        choice: dict[str, str] = {}

        def fits(place: int) -> bool:
            return all(self.truths[name].holds(subject, choice) is wanted[name] for name in due[place])

        def extend(place: int) -> bool:
            if place == len(order):
                return True
            tick()
            if next(steps) > _MOST_STEPS:
                raise TooWide
            for value in order[place].values:
                choice[order[place].name] = value
                if fits(place + 1) and extend(place + 1):
                    return True
            del choice[order[place].name]
            return False

        return self.usual() | choice if fits(0) and extend(0) else None

    def _order(self, wanted: Mapping[str, bool]) -> list[Variable]:
        """The variables of the wanted policies: first those of policies that must hold, for they decide most."""
        seen = {name: self.space.of(self.truths[name].rule) for name in wanted}
        first = sorted(wanted, key=lambda name: (not wanted[name], len(seen[name])))
        return list({variable.name: variable for name in first for variable in seen[name]}.values())

    def _due(self, wanted: Mapping[str, bool], order: Sequence[Variable]) -> list[list[str]]:
        """Which policies can be checked once so many variables of ``order`` have values."""
        places = {variable.name: place for place, variable in enumerate(order, start=1)}
        due: list[list[str]] = [[] for _ in range(len(order) + 1)]
        for name in wanted:
            due[max((places[one.name] for one in self.space.of(self.truths[name].rule)), default=0)].append(name)
        return due

    def _ask_ahead(self, wanted: Mapping[str, bool], subject: Subject) -> None:
        for name in wanted:
            truth = self.truths[name]
            truth.learn((subject, choice) for choice in itertools.islice(own(self.space, truth), _MOST_ASKED_AHEAD))


def own(space: Space, truth: Truth) -> Iterator[dict[str, str]]:
    """All combinations of the values that a policy can see."""
    variables = space.of(truth.rule)
    background = {variable.name: variable.values[0] for variable in space.variables}
    for values in itertools.product(*(variable.values for variable in variables)):
        tick()
        yield background | {variable.name: value for variable, value in zip(variables, values, strict=True)}
