"""Takes policies apart into the conditions that must all hold, and asks Cedar which of them do.

``when { a && b }`` is two conditions, ``unless { a || b }`` is two that must not hold, and the head of a policy is
conditions as well. Cedar evaluates each as a policy of its own, so that nothing here says what an operator means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cedarpy

from bridge.policy.bundle import Bundle
from bridge.policy.cedar import PolicyInfo
from bridge.policy.cedartext import cedar_text
from bridge.policy.facts import entities_of, request_of
from bridge.policy.question import Question
from bridge.policy.reading import Path, path_of

_ANY: Final = {"op": "All"}
_RUN_AS: Final = {"Value": {"__entity": {"type": "Action", "id": "run_as"}}}
_EVERY_ACTION: Final = {"==": {"left": {"Var": "action"}, "right": _RUN_AS}}


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that must be so for a policy to apply."""

    text: str
    """In Cedar."""
    reads: tuple[Path, ...]
    """What of the question it looks at, sorted."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A policy, taken apart."""

    info: PolicyInfo
    conditions: tuple[Condition, ...]


class Conditions:
    """All conditions of a bundle; safe to use from many threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        policies = json.loads(cedarpy.policies_to_json_str(bundle.policies.text))["staticPolicies"].values()
        taken = {policy["annotations"]["id"]: tuple(_conditions(policy)) for policy in policies}
        infos = bundle.policies.infos
        self.policies = tuple(
            Parts(infos[policy_id], tuple(Condition(cedar_text(one), tuple(sorted(_reads(one)))) for one in found))
            for policy_id, found in sorted(taken.items())
        )
        self._alone = cedarpy.PolicySet.from_json_str(json.dumps(_policy_set(taken)))

    def holding(self, question: Question) -> Mapping[str, tuple[bool | None, ...]]:
        """For each policy, which of its conditions hold; None: it can not be told without another that does not."""
        cluster = self._bundle.clusters.choose(question.cluster)
        result = cedarpy.is_authorized(
            request_of(question, cluster.name, self._bundle.calendar),
            self._alone,
            entities_of(question),
            schema=self._bundle.policies.schema,
        )
        true = frozenset(result.diagnostics.reasons)
        return {parts.info.policy_id: tuple(_answers(parts, true)) for parts in self.policies}


def _answers(parts: Parts, true: frozenset[str]) -> Iterator[bool | None]:
    for number in range(len(parts.conditions)):
        holds, fails = (_name(parts.info.policy_id, number, want=want) in true for want in (True, False))
        yield holds if holds is not fails else None


def _conditions(policy: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for variable in ("principal", "action", "resource"):
        head = _head(variable, policy[variable])
        if head is not None and head != _EVERY_ACTION:
            yield head
    for condition in policy["conditions"]:
        body = condition["body"]
        yield from _conjuncts(body if condition["kind"] == "when" else {"!": {"arg": body}})


def _head(variable: str, head: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """``resource in PosixGroup::"chem"`` as an expression; None for no restriction."""
    left = {"Var": variable}
    if head["op"] == "All":
        return None
    if head["op"] == "is":
        within = {"in": {"Value": {"__entity": head["in"]["entity"]}}} if "in" in head else {}
        return {"is": {"left": left, "entity_type": head["entity_type"], **within}}
    if "entities" in head:
        return {
            head["op"]: {"left": left, "right": {"Set": [{"Value": {"__entity": one}} for one in head["entities"]]}}
        }
    return {head["op"]: {"left": left, "right": {"Value": {"__entity": head["entity"]}}}}


def _conjuncts(expression: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "&&" in expression:
        yield from _conjuncts(expression["&&"]["left"])
        yield from _conjuncts(expression["&&"]["right"])
        return
    inner = expression["!"]["arg"] if "!" in expression else {}
    if "||" in inner:
        for side in ("left", "right"):
            yield from _conjuncts({"!": {"arg": inner["||"][side]}})
    elif "!" in inner:
        yield from _conjuncts(inner["!"]["arg"])
    else:
        yield expression


def _reads(expression: Any) -> set[Path]:
    if isinstance(expression, list):
        return {path for one in expression for path in _reads(one)}
    if not isinstance(expression, dict):
        return set()
    path = path_of(expression)
    return {path} if path is not None else _reads(list(expression.values()))


def _name(policy_id: str, number: int, *, want: bool) -> str:
    return f"{policy_id}/{number}/{'holds' if want else 'fails'}"


def _policy_set(taken: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    policies = {}
    for policy_id, conditions in taken.items():
        for number, one in enumerate(conditions):
            policies[_name(policy_id, number, want=True)] = _permit(one)
            policies[_name(policy_id, number, want=False)] = _permit({"!": {"arg": one}})
    return {"staticPolicies": policies, "templates": {}, "templateLinks": []}


def _permit(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "effect": "permit",
        "principal": _ANY,
        "action": _ANY,
        "resource": _ANY,
        "conditions": [{"kind": "when", "body": body}],
    }
