"""Merges values that no policy, link or envelope tells apart: 13 times of day are often only "by day" and "by night".

What is left is the smallest set of situations that still shows every difference, so that it can be complete for
bundles with a dozen variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from types import MappingProxyType
from typing import Final

from bridge.policy.bundle import Bundle
from bridge.policy.calendar import over
from bridge.policy.reach import Reach, own
from bridge.policy.rehearsal import AFTER_POLICIES, Subject
from bridge.policy.situations import FORK, Space, Variable
from bridge.policy.timetable import DAY, day_of
from bridge.policy.truth import Truth

_MOST_ASKED: Final = 5_000


def merged(space: Space, sides: Sequence[tuple[Bundle, Reach, Sequence[Subject]]]) -> Space:
    """``space`` with one value in place of several that make no difference to any of ``sides``."""
    tables = [(truth, people) for _, reach, people in sides for truth in reach.truths.values()]
    variables, meaning = [], {}
    for variable in space.variables:
        looks: dict[Hashable, list[str]] = {}
        for value, look in _looks(space, variable, tables, [bundle for bundle, _, _ in sides]).items():
            looks.setdefault(look, []).append(value)
        meaning[variable.name] = MappingProxyType({values[0]: tuple(values) for values in looks.values()})
        variables.append(replace(variable, values=tuple(meaning[variable.name])))
    kept = tuple(variable for variable in variables if len(variable.values) > 1)
    return replace(space, variables=kept, meaning=MappingProxyType(meaning))


def _looks(
    space: Space,
    variable: Variable,
    tables: Iterable[tuple[Truth, Sequence[Subject]]],
    bundles: Sequence[Bundle],
) -> Mapping[str, Hashable]:
    """What there is to see of each value."""
    if variable.name in AFTER_POLICIES:
        return {value: value for value in variable.values}
    looks: dict[str, list[Hashable]] = {
        value: [_link(variable, value, bundle) for bundle in bundles] for value in variable.values
    }
    for truth, people in tables:
        if variable.name in truth.variables:
            for value, answers in _answers(space, variable, truth, people).items():
                looks[value].append(answers)
    return {value: tuple(look) for value, look in looks.items()}


def _answers(space: Space, variable: Variable, truth: Truth, people: Sequence[Subject]) -> Mapping[str, Hashable]:
    """Where a policy holds with each value; the value itself where that is too much to ask."""
    alike = list({truth.looks(subject): subject for subject in people}.values())
    questions = list(itertools.islice(itertools.product(alike, own(space, truth)), _MOST_ASKED + 1))
    if len(questions) > _MOST_ASKED:
        return {value: value for value in variable.values}
    truth.learn(questions)
    answers: dict[str, list[tuple[bool, bool]]] = {value: [] for value in variable.values}
    for subject, choice in questions:
        answers[choice[variable.name]].append((truth.holds(subject, choice), truth.fails(subject, choice)))
    return {value: tuple(some) for value, some in answers.items()}


def _link(variable: Variable, value: str, bundle: Bundle) -> Hashable:
    """What a project, a fork or a day changes in who runs as whom."""
    if variable.name == "job_project_id":
        return frozenset(
            (issuer, member) for issuer, member, project in bundle.accounts.teams.by_member if str(project) == value
        )
    if variable.name == FORK:
        return value if bundle.accounts.teams.by_member else None
    if variable.name == DAY:
        return _ended(bundle, day_of(value))
    return None


def _ended(bundle: Bundle, day: date) -> int:
    rows, teams = bundle.accounts.rows.values(), bundle.accounts.teams.by_member.values()
    return sum(over(row.expires, day) for row in rows) + sum(over(team.expires, day) for team in teams)
