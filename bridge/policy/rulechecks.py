"""The checks of ``lint`` that ask where policies hold: rules that do nothing, and accounts too near to root.

They are about the values that ``situations`` tries: "never" means in none of these situations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from bridge.errors import PolicyRefused
from bridge.model import Limits
from bridge.policy.bundle import Bundle
from bridge.policy.findings import Finding, Severity, at_rule
from bridge.policy.limits import intersection
from bridge.policy.merging import merged
from bridge.policy.reach import Reach, TooWide
from bridge.policy.reading import Path, Rule, rules
from bridge.policy.rehearsal import Stage, Subject
from bridge.policy.situations import space
from bridge.policy.standins import admitted, privileged, standins
from bridge.policy.truth import truths

_CHANGEABLE: Final = {
    Path("principal", "login"): "a login can be renamed and taken over: decide on principal.id",
    Path("context", "project_path"): "a path can be given to another project: decide on project_id",
}


class RuleChecks:
    """The checks that ask where policies hold."""

    def __init__(self, bundle: Bundle, at: datetime) -> None:
        self._bundle = bundle
        self._rules = rules(bundle)
        self._forbids = {rule.policy_id: False for rule in self._rules if not rule.permits}
        self._anybody = standins(bundle, self._rules)
        self._admitted = admitted(bundle, self._anybody)
        stage = Stage.of(bundle, bundle.calendar.day(at))
        where = space([bundle], self._rules, stage.today, ask_groups=True)
        tables = truths(self._rules, where, stage)
        reach = Reach(where, stage, tables)
        self._reach = Reach(merged(where, [(bundle, reach, self._anybody)]), stage, tables)

    def findings(self) -> Iterator[Finding]:
        """Rule by rule, then of all permits together."""
        for rule in self._rules:
            yield from self._dead(rule)
            yield from self._named_privileged(rule)
            for path, why in _CHANGEABLE.items():
                if rule.permits and path in rule.reads:
                    yield at_rule(rule, "changeable-name", f"{path.root}.{path.attribute}: {why}")
        yield from self._shadowed()
        yield from self._reaching()
        for name, truth in self._reach.truths.items():
            if truth.failures:
                message = f"{name!r} can not be evaluated for some jobs, which are refused: {truth.failures[0]}"
                yield at_rule(truth.rule, "evaluation", message, Severity.ERROR)

    def _never(self, wanted: dict[str, bool], subjects: Sequence[Subject]) -> bool:
        try:
            return self._reach.find(wanted, subjects) is None
        except TooWide:
            return False

    def _dead(self, rule: Rule) -> Iterator[Finding]:
        name = rule.policy_id
        if any(len({path.root for path in paths}) > 1 for paths in rule.together):
            # A person's or account's own number compared with the job's: no made-up value is a fair try.
            return
        if self._never({name: True}, self._anybody):
            yield at_rule(rule, "dead-rule", f"{name!r} does nothing: its condition never holds")
        elif rule.permits and self._never({name: True}, self._admitted):
            yield at_rule(rule, "dead-rule", f"{name!r} does nothing: it holds for accounts only that no job may have")
        elif rule.permits and self._never({name: True, **self._forbids}, self._admitted):
            always = [one for one in self._forbids if self._never({name: True, one: False}, self._admitted)]
            by = f"{always[0]!r} forbids" if always else "the forbids together forbid"
            yield at_rule(rule, "dead-rule", f"{name!r} does nothing: {by} every job that it permits")

    def _shadowed(self) -> Iterator[Finding]:
        """Permits that change nothing; a forbid behind another one is a second wall, and welcome."""
        permits = [rule for rule in self._rules if rule.permits]
        hidden: set[str] = set()
        for rule, other in itertools.permutations(permits, 2):
            if {rule.policy_id, other.policy_id} & hidden or not self._as_tight(other, rule):
                continue
            wanted = {rule.policy_id: True, other.policy_id: False, **self._forbids}
            if self._never(wanted, self._admitted) and not any(self._dead(rule)):
                hidden.add(rule.policy_id)
                message = (
                    f"{rule.policy_id!r} adds nothing: whenever it permits a job {other.policy_id!r} does too, "
                    "with limits that are as tight or tighter, and these count"
                )
                yield at_rule(rule, "shadowed-rule", message)

    def _as_tight(self, rule: Rule, other: Rule) -> bool:
        """Whether the limits of ``rule`` allow nothing that those of ``other`` do not."""
        try:
            own, both = self._limits(rule), self._limits(rule, other)
        except PolicyRefused:
            return False
        return replace(both, names=own.names) == own

    def _limits(self, *some: Rule) -> Limits:
        return intersection([self._bundle.limits[name] for rule in some for name in rule.info.limits])

    def _named_privileged(self, rule: Rule) -> Iterator[Finding]:
        denied = self._bundle.accounts
        for kind, names, what in (
            ("Account", denied.denied_users, "account"),
            ("PosixGroup", denied.denied_groups, "group"),
        ):
            for _, name in sorted(one for one in rule.entities if one[0] == kind and one[1] in names and rule.permits):
                message = f"{rule.policy_id!r} is about the {what} {name}, which accounts.toml denies to every job"
                yield at_rule(rule, "privileged", message, Severity.ERROR)

    def _reaching(self) -> Iterator[Finding]:
        for what, subjects in privileged(self._bundle).items():
            letting = [
                rule
                for rule in self._rules
                if rule.permits and not self._never({rule.policy_id: True, **self._forbids}, subjects)
            ]
            if letting:
                names = ", ".join(repr(rule.policy_id) for rule in letting)
                message = f"only accounts.toml keeps jobs from {what}: {names} would permit it; add a forbid"
                yield at_rule(letting[0], "privileged", message)
