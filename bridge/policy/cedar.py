"""Reads Cedar policies and their schema with file and line, and keeps them parsed for fast decisions.

Rules beyond Cedar's own: every policy has an ``@id`` that no other has, a permit names at least one envelope with
``@limits("a b")``, and a forbid says with ``@reason("...")`` why, in a sentence that the refused person reads.
``@expires("2027-01-31")`` names the last day on which a policy counts, in the bundle's time zone; it becomes one of the
policy's conditions, so that one set of policies serves all days.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any, Final

import cedarpy

from bridge.policy.calendar import number_of
from bridge.policy.problems import InvalidBundle, Problem

SCHEMA_FILE: Final = "schema.cedarschema"
_ANNOTATIONS: Final = frozenset({"id", "limits", "reason", "expires"})
_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,63}", re.ASCII)
_MAX_REASON: Final = 300
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

_PIECE: Final = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"|;', re.DOTALL)
"""What can hide or be the end of a policy: a comment, a string, a semicolon."""


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What a policy's annotations and head say of it."""

    policy_id: str
    effect: str
    """``permit`` or ``forbid``"""
    limits: tuple[str, ...]
    """Names of the envelopes of a permit."""
    reason: str | None
    """Of a forbid: why, for the person."""
    file: str
    line: int
    expires: date | None = None
    """The last day on which it counts."""


@dataclass(frozen=True, slots=True)
class CedarPolicies:
    """A validated policy set with its schema."""

    policy_set: cedarpy.PolicySet
    """With the last days as conditions."""
    schema: cedarpy.Schema
    infos: Mapping[str, PolicyInfo]
    text: str
    """What ``policy_set`` was made of."""


@dataclass(frozen=True, slots=True)
class _Statement:
    file: str
    line: int
    text: str


def parse_policies(texts: Mapping[str, str], limits: AbstractSet[str]) -> CedarPolicies:
    """The policies of all ``*.cedar`` files among ``texts``; ``limits`` are the names of the envelopes that exist.

    Raises InvalidBundle with every problem found.
    """
    schema = _schema(texts[SCHEMA_FILE])
    statements = [
        statement for name in sorted(texts) if name.endswith(".cedar") for statement in split(name, texts[name])
    ]
    infos, problems = _infos(statements, limits)
    if not problems:
        problems = _validate(statements, schema)
    if problems:
        raise InvalidBundle(problems)
    text = "\n".join(_until(one, info) for one, info in zip(statements, infos.values(), strict=True))
    return CedarPolicies(cedarpy.PolicySet.from_str(text), schema, MappingProxyType(infos), text)


def _until(statement: _Statement, info: PolicyInfo) -> str:
    """The policy's text with its last day as one more condition."""
    if info.expires is None:
        return statement.text
    return f"{statement.text.removesuffix(';')}\nwhen {{ context.date <= {number_of(info.expires)} }};"


def split(file: str, text: str) -> Iterator[_Statement]:
    """Each policy of a file, up to its semicolon, with the line on which its first word stands."""
    start = 0
    for piece in _PIECE.finditer(text):
        if piece.group() == ";":
            yield _statement(file, text, start, piece.end())
            start = piece.end()
    rest = re.sub(r"//[^\n]*", "", text[start:])
    if rest.strip():
        yield _statement(file, text, start, len(text))


def _statement(file: str, text: str, start: int, end: int) -> _Statement:
    body = text[start:end]
    lead = re.match(r"(?:\s+|//[^\n]*)*", body)
    first = start + (lead.end() if lead else 0)
    return _Statement(file, text.count("\n", 0, first) + 1, body)


def _schema(text: str) -> cedarpy.Schema:
    try:
        return cedarpy.Schema.from_str(text)
    except ValueError as error:
        raise InvalidBundle([Problem(SCHEMA_FILE, None, str(error))]) from error


def _infos(statements: Sequence[_Statement], limits: AbstractSet[str]) -> tuple[dict[str, PolicyInfo], list[Problem]]:
    infos: dict[str, PolicyInfo] = {}
    problems: list[Problem] = []
    for statement in statements:
        try:
            info = _info(statement, limits)
        except ValueError as error:
            problems.append(Problem(statement.file, statement.line, str(error)))
            continue
        twin = infos.setdefault(info.policy_id, info)
        if twin is not info:
            message = f"@id {info.policy_id!r} is used in {twin.file}:{twin.line} already"
            problems.append(Problem(statement.file, statement.line, message))
    return infos, problems


def _info(statement: _Statement, limits: AbstractSet[str]) -> PolicyInfo:
    """Raises ValueError with the complaint."""
    parsed: dict[str, Any] = json.loads(cedarpy.policies_to_json_str(statement.text))
    if parsed["templates"] or len(parsed["staticPolicies"]) != 1:
        raise ValueError("templates are not used here: write the policy out")
    (policy,) = parsed["staticPolicies"].values()
    annotations: dict[str, str | None] = policy.get("annotations") or {}
    if unknown := sorted(annotations.keys() - _ANNOTATIONS):
        raise ValueError(f"unknown annotation @{unknown[0]}")
    policy_id = annotations.get("id") or ""
    if _ID.fullmatch(policy_id) is None:
        raise ValueError('the policy has no @id("lower-case-words")')
    names = tuple((annotations.get("limits") or "").split())
    reason = annotations.get("reason")
    _check_annotations(policy["effect"], names, reason, limits)
    expires = _last_day(annotations)
    return PolicyInfo(policy_id, policy["effect"], names, reason, statement.file, statement.line, expires)


def _last_day(annotations: Mapping[str, str | None]) -> date | None:
    if "expires" not in annotations:
        return None
    text = annotations["expires"] or ""
    if _DAY.fullmatch(text) is None:
        raise ValueError('@expires is not a day such as "2027-01-31"')
    return date.fromisoformat(text)


def _check_annotations(effect: str, names: Sequence[str], reason: str | None, limits: AbstractSet[str]) -> None:
    if effect == "permit":
        if not names:
            raise ValueError('the permit names no @limits("...")')
        if unknown := [name for name in names if name not in limits]:
            raise ValueError(f"@limits: there is no envelope {unknown[0]!r} in limits.toml")
        if reason is not None:
            raise ValueError("@reason belongs to a forbid")
    else:
        if names:
            raise ValueError("@limits belongs to a permit")
        if not reason or len(reason) > _MAX_REASON or not reason.isprintable():
            raise ValueError('the forbid has no @reason("one line")')


def _validate(statements: Sequence[_Statement], schema: cedarpy.Schema) -> list[Problem]:
    """Hold each policy against the schema; one at a time, for Cedar numbers its complaints and we want lines."""
    problems = []
    for statement in statements:
        for error in cedarpy.validate_policies(statement.text, schema).errors:
            message = error.error.replace(f"for policy `{error.policy_id}`, ", "")
            problems.append(Problem(statement.file, statement.line, message))
    return problems
