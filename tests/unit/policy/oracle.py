"""A second, naive reading of policies: conditions as Python values, which are written as Cedar and judged without it.

Only what the generator makes is understood here. Nothing of ``bridge.policy`` is used, so that a mistake there is not
made twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("Europe/Zurich")


@dataclass(frozen=True)
class Condition:
    """``and``, ``or`` or ``not`` of others, or a comparison of one fact."""

    kind: str
    parts: tuple[Condition, ...] = ()
    fact: str = ""
    value: Any = None

    def cedar(self) -> str:
        """As Cedar writes it; an optional fact is asked for first."""
        if self.kind == "not":
            return f"!({self.parts[0].cedar()})"
        if self.kind in ("and", "or"):
            return f" {'&&' if self.kind == 'and' else '||'} ".join(f"({part.cedar()})" for part in self.parts)
        compared = self._comparison()
        optional = self.fact.startswith("context.") and self.fact[8:] in OPTIONAL
        return f"context has {self.fact[8:]} && {compared}" if optional else compared

    def _comparison(self) -> str:
        if self.kind == "in":
            return f'{self.fact} in PosixGroup::"{self.value}"'
        if self.kind == "one of":
            names = ", ".join(f'"{name}"' for name in self.value)
            return f"[{names}].contains({self.fact})"
        if self.kind == "has":
            return f'{self.fact}.contains("{self.value}")'
        if self.kind == "like":
            return f'{self.fact} like "{self.value}*"'
        text = f'"{self.value}"' if isinstance(self.value, str) else str(self.value).lower()
        return f"{self.fact} {self.kind} {text}"

    def true(self, facts: Mapping[str, Any]) -> bool:
        """Whether it holds; of what is not there nothing does."""
        if self.kind == "not":
            return not self.parts[0].true(facts)
        if self.kind in ("and", "or"):
            return (all if self.kind == "and" else any)(part.true(facts) for part in self.parts)
        found = facts.get(self.fact)
        if found is None:
            return False
        if self.kind in ("in", "has"):
            return self.value in found
        if self.kind == "one of":
            return found in self.value
        if self.kind == "like":
            return bool(found.startswith(self.value))
        if self.kind == "==":
            return bool(found == self.value)
        return bool(found < self.value if self.kind == "<" else found >= self.value)


OPTIONAL = frozenset({"nodes", "partition", "environment", "runner_environment", "groups"})


@dataclass(frozen=True)
class Policy:
    """One permit or forbid."""

    name: str
    permits: bool
    when: tuple[Condition, ...]
    unless: tuple[Condition, ...]
    limits: tuple[str, ...]
    group: str | None
    """In the head: the account is in this group."""

    def cedar(self) -> str:
        """Its text."""
        note = f'@limits("{" ".join(self.limits)}")' if self.permits else '@reason("no.")'
        effect = "permit" if self.permits else "forbid"
        resource = f'resource in PosixGroup::"{self.group}"' if self.group else "resource"
        clauses = [f"when {{ {one.cedar()} }}" for one in self.when]
        clauses += [f"unless {{ {one.cedar()} }}" for one in self.unless]
        head = f'@id("{self.name}")\n{note}\n{effect} (principal, action == Action::"run_as", {resource})'
        return "\n".join([head, *clauses]) + ";"

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it applies."""
        if self.group is not None and self.group not in facts["resource"]:
            return False
        return all(one.true(facts) for one in self.when) and not any(one.true(facts) for one in self.unless)


def facts_of(
    job: Mapping[str, Any], account: Mapping[str, Any], asked: Mapping[str, Any], at: datetime
) -> dict[str, Any]:
    """What conditions can look at."""
    local = at.astimezone(ZONE)
    told = {**job, **asked, "hour": local.hour, "weekday": local.isoweekday()}
    return {
        "resource": account["groups"],
        "resource.uid": account["uid"],
        "principal.id": job["user_id"],
        **{f"context.{name}": value for name, value in told.items()},
    }


def judge(
    policies: Sequence[Policy],
    limits: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> tuple[str, tuple[str, ...]]:
    """The code of the decision, and the names of the policies that made it."""
    forbids = sorted(one.name for one in policies if not one.permits and one.holds(facts))
    if forbids:
        return "policy.forbidden", tuple(forbids)
    permits = sorted(one.name for one in policies if one.permits and one.holds(facts))
    if not permits:
        return "policy.no_permit", ()
    named = [limits[name] for one in policies if one.name in permits for name in one.limits]
    partitions = set.intersection(*(set(one["partitions"]) for one in named))
    if not partitions:
        return "limits.empty", ()
    if asked.get("partition") is not None and asked["partition"] not in partitions:
        return "limits.not_allowed", ()
    for number, most in (("nodes", "max_nodes"), ("gpus", "max_gpus"), ("time_minutes", "max_time_minutes")):
        if asked.get(number) is not None and asked[number] > min(one[most] for one in named):
            return "limits.exceeded", ()
    if facts["context.evidence"] == "job_token" and any(one["evidence"] == "id_token" for one in named):
        return "limits.evidence", ()
    return "allowed", tuple(permits)
