"""Offset pagination with the headers that GitLab's clients read."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse

MAX_PER_PAGE = 100
T = TypeVar("T")


def paged(request: Request, rows: Sequence[T], show: Callable[[T], Any]) -> JSONResponse:
    """One page of `rows` (already in the order to show), by the `page` and `per_page` parameters."""
    page = _positive(request.query_params.get("page"), 1)
    size = min(_positive(request.query_params.get("per_page"), 20), MAX_PER_PAGE)
    pages = max(1, -(-len(rows) // size))
    shown = [show(row) for row in rows[(page - 1) * size : page * size]]
    headers = {
        "X-Page": str(page),
        "X-Per-Page": str(size),
        "X-Total": str(len(rows)),
        "X-Total-Pages": str(pages),
        "X-Next-Page": str(page + 1) if page < pages else "",
        "X-Prev-Page": str(page - 1) if page > 1 else "",
        "Link": _links(request, page, pages),
    }
    return JSONResponse(shown, headers=headers)


def _positive(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and int(text) > 0 else default


def _links(request: Request, page: int, pages: int) -> str:
    wanted = {"first": 1, "last": pages}
    if page < pages:
        wanted["next"] = page + 1
    if page > 1:
        wanted["prev"] = page - 1
    return ", ".join(
        f'<{request.url.include_query_params(page=number)}>; rel="{name}"' for name, number in wanted.items()
    )
