"""What each policy can see: which attributes its condition reads, and what it compares them with.

Whether a policy holds depends on nothing else, so that a policy which reads three attributes is known completely after
all combinations of these three have been tried. ``situations`` makes values from this, ``truth`` asks Cedar.

The policies are read in Cedar's JSON form (docs.cedarpolicy.com, "JSON policy format").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import cedarpy

from bridge.policy.bundle import Bundle
from bridge.policy.cedar import PolicyInfo

WHOLE: Final = ""
"""Stands for the attribute where a policy reads the principal or the resource as such."""

_JUNCTIONS: Final = frozenset({"&&", "||", "!", "if-then-else", ".", "has"})


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """``context.ref`` is Path("context", "ref"); ``principal == ...`` reads Path("principal", WHOLE)."""

    root: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One policy, alone."""

    info: PolicyInfo
    policy_set: cedarpy.PolicySet
    reads: frozenset[Path]
    compared: Mapping[Path, frozenset[str]]
    """Each path's constants, as JSON."""
    together: frozenset[frozenset[Path]]
    """Paths that are compared with each other."""
    entities: frozenset[tuple[str, str]]
    """(type, id) of every entity that the policy names, e.g. ("PosixGroup", "chem")."""
    calculates: bool
    """Whether it adds, subtracts or multiplies."""

    @property
    def permits(self) -> bool:
        """Whether it is a permit, not a forbid."""
        return self.info.effect == "permit"

    @property
    def policy_id(self) -> str:
        """Its ``@id``."""
        return self.info.policy_id


def rules(bundle: Bundle) -> tuple[Rule, ...]:
    """Every policy of the bundle by itself, sorted by ``@id``."""
    policies = json.loads(cedarpy.policies_to_json_str(bundle.policies.text))["staticPolicies"].values()
    found = (_rule(policy, bundle.policies.infos) for policy in policies)
    return tuple(sorted(found, key=lambda rule: rule.policy_id))


def _rule(policy: Mapping[str, Any], infos: Mapping[str, PolicyInfo]) -> Rule:
    alone = json.dumps({"staticPolicies": {"only": policy}, "templates": {}, "templateLinks": []})
    notes = _Notes()
    for root in ("principal", "resource"):
        notes.head(root, policy[root])
    for condition in policy["conditions"]:
        notes.read(condition["body"])
    return Rule(
        info=infos[policy["annotations"]["id"]],
        policy_set=cedarpy.PolicySet.from_json_str(alone),
        reads=frozenset(notes.reads),
        compared={path: frozenset(values) for path, values in notes.compared.items()},
        together=frozenset(notes.together),
        entities=frozenset(notes.entities),
        calculates=notes.calculates,
    )


class _Notes:
    """Collects while it walks through an expression."""

    def __init__(self) -> None:
        self.reads: set[Path] = set()
        self.compared: dict[Path, set[str]] = {}
        self.together: set[frozenset[Path]] = set()
        self.entities: set[tuple[str, str]] = set()
        self.calculates = False

    def head(self, root: str, head: Mapping[str, Any]) -> None:
        """Take the scope of a policy: ``resource in PosixGroup::"chem"``."""
        if head["op"] != "All":
            self.reads.add(Path(root, WHOLE))
        for part in (head, head.get("in") or {}):
            named = [part["entity"]] if "entity" in part else part.get("entities", [])
            self.entities.update((one["type"], one["id"]) for one in named)

    def read(self, expression: Any) -> None:
        """Take an expression and all within it."""
        if isinstance(expression, list):
            for one in expression:
                self.read(one)
            return
        if not isinstance(expression, dict):
            return
        path = path_of(expression)
        if path is not None:
            self.reads.add(path)
            return
        for operator, operands in expression.items():
            self.calculates |= operator in ("+", "-", "*", "neg")
            if operator == "Value":
                self.entities.update(_entities(operands))
            elif operator == "is":
                self.read(operands["left"])
                self.read(operands.get("in"))
            else:
                if operator not in _JUNCTIONS:
                    self._compare(operands)
                self.read(list(operands.values()) if isinstance(operands, dict) else operands)

    def _compare(self, operands: Any) -> None:
        paths = frozenset(_paths(operands))
        constants = set(_constants(operands))
        for path in paths:
            self.compared.setdefault(path, set()).update(constants)
        if len(paths) > 1:
            self.together.add(paths)


def path_of(expression: Mapping[str, Any]) -> Path | None:
    """The path that an expression is: a variable, or an attribute of one that is read or asked for with ``has``."""
    if "Var" in expression:
        return Path(expression["Var"], WHOLE)
    for operator in (".", "has"):
        if operator in expression and "Var" in expression[operator]["left"]:
            return Path(expression[operator]["left"]["Var"], expression[operator]["attr"])
    return None


def _paths(expression: Any) -> Iterator[Path]:
    if isinstance(expression, list):
        for one in expression:
            yield from _paths(one)
    elif isinstance(expression, dict):
        path = path_of(expression)
        if path is not None:
            yield path
        else:
            yield from _paths(list(expression.values()))


def _constants(expression: Any) -> Iterator[str]:
    """The constants in an expression as JSON, those in sets one by one; of a pattern a text that it matches."""
    if isinstance(expression, list):
        for one in expression:
            yield from _constants(one)
    elif isinstance(expression, dict):
        value = _constant(expression)
        if value is not None:
            yield json.dumps(value, sort_keys=True)
        elif "Set" in expression:
            yield from _constants(expression["Set"])
        elif "pattern" in expression:
            pieces = ("" if piece == "Wildcard" else piece["Literal"] for piece in expression["pattern"])
            yield json.dumps("".join(pieces))
        else:
            yield from _constants(list(expression.values()))


def _constant(expression: Mapping[str, Any]) -> Any:
    """The value of a constant in the JSON of contexts (``{"__extn": ...}`` for datetime and the like), else None."""
    ((operator, operand),) = list(expression.items())[:1] or [("", None)]
    if operator == "Value":
        return operand
    if operator == "Record":
        members = {name: _constant(value) for name, value in operand.items()}
        return None if None in members.values() else members
    if isinstance(operand, list) and len(operand) == 1 and operator in ("datetime", "duration", "decimal", "ip"):
        inner = _constant(operand[0])
        return None if inner is None else {"__extn": {"fn": operator, "arg": inner}}
    return None


def _entities(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and "__entity" in value:
        yield value["__entity"]["type"], value["__entity"]["id"]
