"""Grants as canonical JSON (RFC 8785) and back: what the broker seals, the database keeps and nobody may change.

One grant has one text, so that a seal over the text is a seal over the grant. Grants of earlier releases can be read
still, and what their absent members mean is written down here.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import UTC, datetime
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import rfc8785

from bridge.errors import Defect
from bridge.model import (
    Cluster,
    EvidenceLevel,
    ExternalIdentity,
    Flavor,
    Grant,
    Identity,
    Limits,
    Mount,
    OnExcess,
    PosixAccount,
    SlurmPlan,
)

T = TypeVar("T")

_TYPES = (Grant, Identity, ExternalIdentity, PosixAccount, Cluster, Mount, SlurmPlan, Limits)
_HINTS: dict[type, dict[str, Any]] = {one: get_type_hints(one) for one in _TYPES}

_IDENTITIES_FIRST: dict[str, Any] = {
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

_WITHOUT_CHOICES: dict[str, dict[str, Any]] = {
    "grant": {"notes": [], "link_id": None},
    "limits": {
        "targets": None,
        "mounts": None,
        "mdt_flavor": Flavor.NULL.value,
        "ost_flavor": Flavor.NULL.value,
        "evidence": EvidenceLevel.INTROSPECTED.value,
        "on_excess": OnExcess.REFUSE.value,
    },
    "cluster": {"mounts": [], "login_hosts": []},
}

_REMEMBERED = 256
"""How many texts keep their grant, which nobody can change: a run's is read whenever something is done for it."""

_Absent = dict[str, dict[str, Any]]

_RELEASES: tuple[_Absent, ...] = (
    {},
    _WITHOUT_CHOICES,
    _WITHOUT_CHOICES | {"identity": _IDENTITIES_FIRST},
)
"""What each release did not write, by object, and what its absence means; the newest comes first."""

_PLACES: dict[str, type] = {"grant": Grant, "identity": Identity, "limits": Limits, "cluster": Cluster}


def to_json(grant: Grant) -> bytes:
    """The canonical JSON of ``grant``: times as UTC text to the microsecond, absent values as null."""
    return rfc8785.dumps(_plain(grant))


@lru_cache(_REMEMBERED)
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
    found = {place: _part(members, place).keys() for place in _PLACES}
    for absent in _RELEASES:
        if found == {place: _HINTS[kind].keys() - absent.get(place, {}).keys() for place, kind in _PLACES.items()}:
            return absent
    return {}


def _part(members: dict[str, Any], place: str) -> dict[str, Any]:
    part: dict[str, Any] = members if place == "grant" else members[place]
    return part


def _completed(members: dict[str, Any], absent: _Absent) -> dict[str, Any]:
    parts = {place: members[place] | more for place, more in absent.items() if place != "grant"}
    return members | parts | absent.get("grant", {})


def _shortened(members: dict[str, Any], absent: _Absent) -> dict[str, Any]:
    for place, more in absent.items():
        for name in more:
            del _part(members, place)[name]
    return members


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
