"""Grants as canonical JSON (RFC 8785) and back: what the broker seals, the database keeps and nobody may change.

One grant has one text, so that a seal over the text is a seal over the grant. Grants of earlier releases can be read
still, and what their absent members mean is written down here.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import UTC, datetime
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import rfc8785

from bridge.errors import Defect
from bridge.model import (
    Cluster,
    EvidenceLevel,
    ExternalIdentity,
    Grant,
    Identity,
    Limits,
    PosixAccount,
    SlurmPlan,
)

T = TypeVar("T")

_TYPES = (Grant, Identity, ExternalIdentity, PosixAccount, Cluster, SlurmPlan, Limits)
_HINTS: dict[type, dict[str, Any]] = {one: get_type_hints(one) for one in _TYPES}

_IDENTITIES_FIRST = {
    "evidence": EvidenceLevel.SIGNED.value,
    "ref_path": None,
    "user_access_level": None,
    "ci_config_ref_uri": None,
    "ci_config_sha": None,
    "environment_protected": None,
    "deployment_tier": None,
    "user_identities": None,
    "groups": None,
}

_Absent = dict[str, dict[str, Any]]

_RELEASES: tuple[_Absent, ...] = (
    {},
    {"grant": {"link_id": None}},
    {"grant": {"link_id": None}, "identity": _IDENTITIES_FIRST},
)
"""What each release did not write, by object, and what its absence means; the newest comes first."""


def to_json(grant: Grant) -> bytes:
    """The canonical JSON of ``grant``: times as UTC text to the microsecond, absent values as null."""
    return rfc8785.dumps(_plain(grant))


def from_json(data: bytes) -> Grant:
    """The grant that ``to_json`` wrote; raises Defect ``grant.malformed`` for anything else."""
    try:
        members = json.loads(data)
        absent = _release_of(members)
        grant = _object(Grant, _completed(members, absent))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _malformed(type(error).__name__) from error
    if rfc8785.dumps(_shortened(_plain(grant), absent)) != data:
        raise _malformed("not canonical")
    return grant


def _release_of(members: Any) -> _Absent:
    """Which release wrote this, by the members that it has; the newest where none fits, which then is refused."""
    written = _HINTS[Grant].keys(), _HINTS[Identity].keys()
    for absent in _RELEASES:
        expected = tuple(
            names - absent.get(place, {}).keys() for names, place in zip(written, ("grant", "identity"), strict=True)
        )
        if (members.keys(), members["identity"].keys()) == expected:
            return absent
    return {}


def _completed(members: dict[str, Any], absent: _Absent) -> dict[str, Any]:
    return members | absent.get("grant", {}) | {"identity": members["identity"] | absent.get("identity", {})}


def _shortened(members: dict[str, Any], absent: _Absent) -> dict[str, Any]:
    kept = {name: value for name, value in members.items() if name not in absent.get("grant", {})}
    left_out = absent.get("identity", {})
    return kept | {"identity": {name: one for name, one in members["identity"].items() if name not in left_out}}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, enum.StrEnum):
        return value.value
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
    if issubclass(hint, enum.StrEnum):
        return hint(_typed(str, value))
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
