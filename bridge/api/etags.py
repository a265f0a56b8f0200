"""Entity tags of what can change, and that whoever changes it has read it (RFC 9110 sections 8.8.3 and 13)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Request

from bridge.errors import Conflict, RequestRefused

_STRONG: Final = re.compile(r'"([1-9][0-9]{0,15})"', re.ASCII)


def etag(version: int) -> str:
    """Return the strong entity tag of a version."""
    return f'"{version}"'


async def if_match(request: Request) -> int:
    """Return the version that ``If-Match`` names.

    Raises RequestRefused ``request.precondition_required`` without one, as also for ``*``, which says that nothing was
    read; and Conflict ``policy.changed`` for a tag that is none of ours, which therefore matches nothing.
    """
    given = request.headers.getlist("If-Match")
    if len(given) != 1 or given[0].strip() == "*":
        raise RequestRefused(
            "request.precondition_required",
            "This changes something that others change too, and nothing says which version of it you have read.",
            "Send the ETag of what you read as If-Match.",
        )
    found = _STRONG.fullmatch(given[0].strip())
    if found is None:
        raise Conflict("policy.changed", "The proposal has changed since you read it.", "Read it again, then decide.")
    return int(found[1])


Version = Annotated[int, Depends(if_match)]
