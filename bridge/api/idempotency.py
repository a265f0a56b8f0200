"""The header by which a request that creates something can come again without creating it twice.

What was answered is kept by the broker, see ``people.repeating``: for 24 hours, and for the same caller only.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Request

from bridge.errors import RequestRefused

HEADER: Final = "Idempotency-Key"

_KEY: Final = re.compile(r"[\x21-\x7e]{16,128}", re.ASCII)


async def idempotency_key(request: Request) -> str | None:
    """Return the key, or None; raises RequestRefused ``idempotency.key``."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) != 1 or _KEY.fullmatch(given[0]) is None:
        raise RequestRefused(
            "idempotency.key",
            "An idempotency key has 16 to 128 printable characters without spaces.",
            "Make one at random, such as a UUID.",
        )
    return given[0]


async def no_idempotency_key(request: Request) -> None:
    """Pass for a request without a key; raises RequestRefused ``idempotency.not_here``: the answer is a secret."""
    if request.headers.getlist(HEADER):
        raise RequestRefused(
            "idempotency.not_here",
            "What is answered here is a secret, which the bridge keeps nowhere.",
            "Ask without an idempotency key; revoke what you did not receive.",
        )


Key = Annotated[str | None, Depends(idempotency_key)]


def keyed(key: str | None) -> dict[str, str]:
    """Return the member of a request to the broker that has its idempotency key, if there is one."""
    return {} if key is None else {"idempotency_key": key}
