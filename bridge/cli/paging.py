"""Lists of the admin API, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer

from bridge.cli.remote import Remote

PAGE: Final = 200
MOST_PAGES: Final = 500
"""So that an answer that always names a next page ends nevertheless."""

Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")]


def asking(path: str, query: Mapping[str, object]) -> str:
    """Return the path with those members of the query that say something."""
    said = urlencode({name: str(value) for name, value in query.items() if value is not None})
    return f"{path}?{said}" if said else path


def items(bridge: Remote, path: str, query: Mapping[str, object], limit: int | None) -> list[Any]:
    """Return the first ``limit`` of a list, or all of it; raises as ``Remote.get`` does."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        answer = bridge.get(asking(path, {**query, "limit": size, "cursor": cursor}))
        found += bridge.read(list[Any], answer.get("items"))
        cursor = bridge.read(str | None, answer.get("next_cursor"))  # type: ignore[arg-type]
        if cursor is None or (limit is not None and len(found) >= limit):
            return found[:limit]
    raise bridge.unreadable("a list without an end")
