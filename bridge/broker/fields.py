"""Reads the members of a request, each of exactly the type that it must have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bridge.broker.incoming import DATA
from bridge.errors import Defect, RequestRefused


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


def files(request: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the bundle in the frame's data; raises RequestRefused ``policy.files`` for what is no object of texts."""
    data = request.get(DATA)
    if not isinstance(data, bytes):
        raise malformed()
    try:
        found: Mapping[str, str] = json.loads(data.decode("utf-8", errors="strict"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _no_files() from error
    if type(found) is not dict or not all(type(text) is str for text in found.values()):
        raise _no_files()
    return found


def malformed() -> Defect:
    """The answer to a request that is not what web would send."""
    return Defect("broker.malformed", "Web sent the broker a request that it can't read.", "Update both.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A path that is there twice could be read as the one by people, and as the other by us."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_files() -> RequestRefused:
    return RequestRefused(
        "policy.files",
        "The files of the bundle can not be read.",
        "Send a JSON object that has each file's path once, and its text.",
    )
