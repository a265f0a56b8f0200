"""Lists in pages: each names the cursor of the next, until there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

T = TypeVar("T")

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most.")]
CURSOR: Final = "The next_cursor of the page before."

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Page(BaseModel, Generic[T]):
    """A part of a list. It may be short, even empty, where there is a next one."""

    items: list[T]
    next_cursor: str | None


def page(found: Sequence[T], limit: int, cursor_of: Callable[[T], str]) -> dict[str, Any]:
    """Return a page of the first ``limit`` of ``found``, which has one more where there is a next page."""
    items = found[:limit]
    return {"items": items, "next_cursor": cursor_of(items[-1]) if len(found) > limit else None}


def moment_text(moment: datetime) -> str:
    """Return a moment as the digits that a cursor has: microseconds since 1970, in 16 digits."""
    return f"{(moment - _EPOCH) // _MICROSECOND:016}"


def moment_of(text: str) -> datetime:
    """Return the moment of such digits."""
    return _EPOCH + int(text) * _MICROSECOND
