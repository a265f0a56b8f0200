"""What differs between two bundles as written: policies, envelopes, rows, teams and clusters, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Any, Final

import cedarpy

from bridge.model import EvidenceLevel, Flavor, OnExcess
from bridge.policy.accounts import AccountRules
from bridge.policy.bundle import Bundle
from bridge.policy.teams import Team

_HEAD: Final = re.compile(r'(?:@\w+\("[^"]*"\)\s*)*(permit|forbid)\(')
"""A policy after its annotations."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One thing that is written otherwise."""

    what: str
    """``policy``, ``limits``, ``account``, ``team``, ``floor``, ``denied``, ``cluster`` or ``calendar``"""
    name: str
    field: str
    """Empty where the whole thing is added or removed."""
    before: str
    """Empty where it is added."""
    after: str
    loud: bool
    """Whether it may open something."""

    def __str__(self) -> str:
        """``limits small: max_nodes 1 -> 2``"""
        if not self.field:
            if not self.before:
                return f"{self.what} {self.name} added: {self.after}"
            return f"{self.what} {self.name} removed: {self.before}" if not self.after else self._moved()
        return self._moved()

    def _moved(self) -> str:
        field = f" {self.field}" if self.field else ""
        return f"{self.what} {self.name}:{field} {self.before or 'none'} -> {self.after or 'none'}"


def changes(old: Bundle, new: Bundle) -> list[Change]:
    """All changes, in the order policies, limits, accounts, teams, clusters."""
    return [
        *_things("policy", _policies(old), _policies(new), _policy_widens),
        *_fields("limits", _tables(old.limits), _tables(new.limits), _limits_widen),
        *_things("account", _rows(old.accounts), _rows(new.accounts), lambda _was, _now: True),
        *_things("team", _teams(old.accounts), _teams(new.accounts), lambda _was, _now: True),
        *_denials(old.accounts, new.accounts),
        *_fields("cluster", _tables(old.clusters.by_name), _tables(new.clusters.by_name), _cluster_widens),
        *_one("cluster", "default", old.clusters.default, new.clusters.default, loud=True),
        *_one("calendar", "zone", old.calendar.zone.key, new.calendar.zone.key, loud=True),
    ]


def _things(
    what: str, old: Mapping[str, str], new: Mapping[str, str], loud: Callable[[str, str], bool]
) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            yield Change(what, name, "", was, now, loud=loud(was, now))


def _fields(
    what: str,
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Mapping[str, Any]],
    widens: Callable[[str, Any, Any], bool],
) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield Change(what, name, "", "", _facts(new[name]), loud=what == "cluster")
        elif name not in new:
            yield Change(what, name, "", _facts(old[name]), "", loud=False)
        else:
            for field, was in old[name].items():
                now = new[name][field]
                if was != now:
                    yield Change(what, name, field, _text(was), _text(now), loud=widens(field, was, now))


def _one(what: str, name: str, was: str, now: str, *, loud: bool) -> Iterator[Change]:
    if was != now:
        yield Change(what, name, "", was, now, loud)


def _policies(bundle: Bundle) -> dict[str, str]:
    """What each policy says, without its place, comments and layout."""
    parsed = json.loads(cedarpy.policies_to_json_str(bundle.policies.text))["staticPolicies"].values()
    return {policy["annotations"]["id"]: _policy(policy) for policy in parsed}


def _policy(policy: Mapping[str, Any]) -> str:
    annotations = {name: value for name, value in policy["annotations"].items() if name in ("limits", "expires")}
    bare = {**policy, "annotations": annotations}
    alone = {"staticPolicies": {"only": bare}, "templates": {}, "templateLinks": []}
    return " ".join(cedarpy.policies_from_json_str(json.dumps(alone)).split())


def _policy_widens(was: str, now: str) -> bool:
    """A permit that comes or changes, a forbid that goes or changes."""
    return _effect(now) == "permit" or _effect(was) == "forbid"


def _effect(text: str) -> str | None:
    found = _HEAD.match(text)
    return found[1] if found else None


def _tables(by_name: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: value for key, value in asdict(one).items() if key not in ("name", "names")}
        for name, one in by_name.items()
    }


_STRONGER: Final[Mapping[str, tuple[Any, ...]]] = {
    "evidence": (EvidenceLevel.INTROSPECTED, EvidenceLevel.SIGNED),
    "mdt_flavor": tuple(Flavor),
    "ost_flavor": tuple(Flavor),
    "on_excess": (OnExcess.CLAMP, OnExcess.REFUSE),
}
"""Values from the most open to the strictest."""


def _limits_widen(field: str, was: Any, now: Any) -> bool:
    if field in _STRONGER:
        return _STRONGER[field].index(now) < _STRONGER[field].index(was)
    if isinstance(was, int) and isinstance(now, int):
        return now > was
    # None is all that the cluster has.
    return now is None or (was is not None and not set(now) <= set(was))


def _cluster_widens(field: str, was: Any, now: Any) -> bool:
    if field in ("login_targets", "node_targets", "nodes"):
        return not set(now) <= set(was)
    return True


def _rows(rules: AccountRules) -> dict[str, str]:
    return {
        f"{row.user_id} at {row.issuer}": f"{row.account} ({row.uid})"
        + (f" until {row.expires}" if row.expires else "")
        for row in rules.rows.values()
    }


def _teams(rules: AccountRules) -> dict[str, str]:
    found: dict[str, list[Team]] = {}
    for team in dict.fromkeys(rules.teams.by_member.values()):
        found.setdefault(f"{team.account} at {team.issuer}", []).append(team)
    return {name: "; ".join(sorted(map(_team, teams))) for name, teams in found.items()}


def _team(team: Team) -> str:
    members = ", ".join(map(str, sorted(team.members)))
    projects = ", ".join(map(str, sorted(team.projects)))
    end = f" until {team.expires}" if team.expires else ""
    return f"uid {team.uid}, users {members} in projects {projects}{end}"


def _denials(old: AccountRules, new: AccountRules) -> Iterator[Change]:
    yield from _one("floor", "uid", str(old.floor_uid), str(new.floor_uid), loud=new.floor_uid < old.floor_uid)
    yield from _denied("users", old.denied_users, new.denied_users)
    yield from _denied("groups", old.denied_groups, new.denied_groups)


def _denied(name: str, old: AbstractSet[str], new: AbstractSet[str]) -> Iterator[Change]:
    if old != new:
        yield Change("denied", name, "", _text(sorted(old)), _text(sorted(new)), loud=not old <= new)


def _facts(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in table.items())


def _text(value: Any) -> str:
    if value is None:
        return "all of the cluster's"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + _facts(value) + "}"
    return str(value)
