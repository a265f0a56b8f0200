"""Reads the members of a request, each of exactly the type that it must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.errors import Defect


def texts(request: Mapping[str, Any], *names: str) -> list[str]:
    """Return members that are texts; raises Defect ``broker.malformed``."""
    values = [request.get(name) for name in names]
    if not all(type(value) is str for value in values):
        raise malformed()
    return [str(value) for value in values]


def numbers(request: Mapping[str, Any], *names: str) -> list[int]:
    """Return members that are whole numbers; raises Defect ``broker.malformed``."""
    values = [request.get(name) for name in names]
    if not all(type(value) is int for value in values):
        raise malformed()
    return [int(value) for value in values if value is not None]


def optional_text(request: Mapping[str, Any], name: str) -> str | None:
    """Return a member that may be absent or null; raises Defect ``broker.malformed``."""
    return None if request.get(name) is None else texts(request, name)[0]


def optional_number(request: Mapping[str, Any], name: str) -> int | None:
    """Return a member that may be absent or null; raises Defect ``broker.malformed``."""
    return None if request.get(name) is None else numbers(request, name)[0]


def flag(request: Mapping[str, Any], name: str) -> bool:
    """Return a member that is true or false; raises Defect ``broker.malformed``."""
    value = request.get(name)
    if type(value) is not bool:
        raise malformed()
    return value


def malformed() -> Defect:
    """The answer to a request that is not what web would send."""
    return Defect("broker.malformed", "Web sent the broker a request that it can't read.", "Update both.")
