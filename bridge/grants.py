"""Grants as canonical JSON (RFC 8785) and back: what the broker seals, the database keeps and nobody may change.

One grant has one text, so that a seal over the text is a seal over the grant.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import rfc8785

from bridge.errors import Defect
from bridge.model import Cluster, Grant, Identity, Limits, PosixAccount, SlurmPlan

T = TypeVar("T")

_TYPES = (Grant, Identity, PosixAccount, Cluster, SlurmPlan, Limits)
_HINTS: dict[type, dict[str, Any]] = {one: get_type_hints(one) for one in _TYPES}


def to_json(grant: Grant) -> bytes:
    """The canonical JSON of ``grant``: times as UTC text to the microsecond, absent values as null."""
    return rfc8785.dumps(_plain(grant))


def from_json(data: bytes) -> Grant:
    """The grant that ``to_json`` wrote; raises Defect ``grant.malformed`` for anything else."""
    try:
        grant = _object(Grant, json.loads(data))
    except (ValueError, TypeError, KeyError) as error:
        raise _malformed(type(error).__name__) from error
    if to_json(grant) != data:
        raise _malformed("not canonical")
    return grant


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return value


def _object(kind: type[T], members: Any) -> T:
    hints = _HINTS[kind]
    if type(members) is not dict or members.keys() != hints.keys():
        raise ValueError(f"other members than {kind.__name__} has")
    return kind(**{name: _typed(hint, members[name]) for name, hint in hints.items()})


def _typed(hint: Any, value: Any) -> Any:
    if isinstance(hint, UnionType):
        return None if value is None else _typed(next(one for one in get_args(hint) if one is not type(None)), value)
    if hint in _HINTS:
        return _object(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_typed(get_args(hint)[0], item) for item in _typed(list, value))
    if hint is datetime:
        return datetime.fromisoformat(_typed(str, value)).astimezone(UTC)
    if type(value) is not hint:
        raise TypeError(f"not {hint.__name__}")
    return value


def _malformed(reason: str) -> Defect:
    return Defect(
        "grant.malformed",
        "A stored grant could not be read.",
        "Give the reference to the administrators of the bridge.",
        reason=reason,
    )
