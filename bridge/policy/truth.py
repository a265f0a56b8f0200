"""Asks Cedar where each policy holds: policy by policy, in batches, and once for all questions that look alike to it.

Cedar itself reports either the permits or the forbids that hold, never both, and a decision costs tens of
microseconds. A policy alone depends on the few things that it reads, so a table of a hundred thousand decisions needs
some hundred evaluations; the rest is combination: at least one permit, no forbid. ``Engine`` decides real jobs with
all policies at once, and a test holds the two together.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cedarpy

from bridge.policy.facts import entities_of, user_entity_id
from bridge.policy.reading import WHOLE, Path, Rule
from bridge.policy.rehearsal import Stage, Subject
from bridge.policy.situations import Choice, Space
from bridge.policy.worktime import tick

_BATCH: Final = 5000


Case = tuple[Subject, Choice]


@dataclass(slots=True)
class Truth:
    """Where one policy holds; remembers every answer."""

    rule: Rule
    stage: Stage
    variables: tuple[str, ...]
    """Names of the variables on which it depends."""
    failures: list[str] = field(init=False, default_factory=list)
    """What Cedar said where the policy could not be evaluated; a real job is refused there."""
    _answers: dict[tuple[Any, ...], bool | None] = field(init=False, default_factory=dict)

    def holds(self, subject: Subject, choice: Choice) -> bool:
        """Whether the policy holds for ``subject`` in the situation ``choice``."""
        return self._answer(subject, choice) is True

    def fails(self, subject: Subject, choice: Choice) -> bool:
        """Whether it can not be evaluated there."""
        return self._answer(subject, choice) is None

    def _answer(self, subject: Subject, choice: Choice) -> bool | None:
        key = (self.looks(subject), self.part(choice))
        if key not in self._answers:
            self.learn([(subject, choice)])
        return self._answers[key]

    def learn(self, questions: Iterable[Case]) -> None:
        """Ask Cedar about all that is not known yet."""
        new: dict[tuple[Any, ...], Case] = {}
        for subject, choice in questions:
            key = (self.looks(subject), self.part(choice))
            if key not in self._answers:
                new.setdefault(key, (subject, choice))
        items = list(new.items())
        while items:
            tick()
            items = self._ask(items[:_BATCH]) + items[_BATCH:]

    def part(self, choice: Choice) -> tuple[str, ...]:
        """What the policy sees of a situation."""
        return tuple(choice.get(name, "") for name in self.variables)

    def looks(self, subject: Subject) -> tuple[Any, ...]:
        """What the policy sees of a subject; two with the same looks have the same answers."""
        return tuple(_seen(self.rule, path, subject) for path in sorted(self.rule.reads) if _of_subject(path))

    def _ask(self, items: Sequence[tuple[tuple[Any, ...], Case]]) -> list[tuple[tuple[Any, ...], Case]]:
        """Ask at once what can be; returns the rest: an account has one uid and one set of groups in a batch."""
        entities: dict[str, Any] = {}
        asked, requests, rest = [], [], []
        for key, case in items:
            question = self.stage.question(*case)
            found = {json.dumps(one["uid"]): one for one in json.loads(entities_of(question))}
            if any(entities.get(name, one) != one for name, one in found.items()):
                rest.append((key, case))
                continue
            entities |= found
            asked.append(key)
            requests.append(self.stage.request(question))
        graph = cedarpy.Entities.from_json_str(json.dumps(list(entities.values())))
        answers = cedarpy.is_authorized_batch(requests, self.rule.policy_set, graph)
        for key, answer in zip(asked, answers, strict=True):
            self.failures.extend(answer.diagnostics.errors)
            self._answers[key] = None if answer.diagnostics.errors else bool(answer.diagnostics.reasons)
        return rest


def truths(rules: Iterable[Rule], space: Space, stage: Stage) -> Mapping[str, Truth]:
    """A table for each policy, empty as yet, by ``@id``."""
    return {rule.policy_id: Truth(rule, stage, tuple(variable.name for variable in space.of(rule))) for rule in rules}


def _of_subject(path: Path) -> bool:
    return path.root in ("principal", "resource") or path.attribute == "issuer"


def _seen(rule: Rule, path: Path, subject: Subject) -> Any:
    account = subject.account
    if path.root == "principal" and path.attribute == WHOLE:
        name = user_entity_id(subject.issuer, subject.user_id)
        return name if ("User", name) in rule.entities else None
    if path.root == "resource" and path.attribute == WHOLE:
        named = tuple(group for group in account.groups if ("PosixGroup", group) in rule.entities)
        return (account.name if ("Account", account.name) in rule.entities else None, frozenset(named))
    values = {
        "id": subject.user_id,
        "issuer": subject.issuer,
        "login": subject.login,
        "uid": account.uid,
        "gid": account.gid,
    }
    value = values[path.attribute]
    return _interval(rule, path, value) if isinstance(value, int) else value


def _interval(rule: Rule, path: Path, value: int) -> Any:
    """The number itself, or between which of the policy's constants it lies, where the policy only compares it."""
    if rule.calculates or any(path in paths for paths in rule.together):
        return value
    numbers = sorted(one for one in map(json.loads, rule.compared.get(path, ())) if isinstance(one, int))
    place = bisect_left(numbers, value)
    return (place, place < len(numbers) and numbers[place] == value)
