"""Keeps other sites' pages from acting in a person's name (T41).

A browser sends Negotiate by itself, as it sends cookies, whichever page asked for the request. So whatever changes
something must also show that it comes from a page of ours, or from no page at all: by ``Origin`` (RFC 6454 section 7)
and ``Sec-Fetch-Site`` (W3C Fetch Metadata), which no page can forge; and calls of the API by a header and a media type
that a page of another site can't send without asking first, which is never allowed here (no CORS).
"""

from __future__ import annotations

import re
from typing import Final

from fastapi import Request

from bridge.errors import PolicyRefused

CLIENT_HEADER: Final = "X-CI-Bridge-Client"
"""Any printable value that names the program, such as ``ci-bridge/0.1``."""

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"

_OWN: Final = frozenset({"same-origin", "none"})
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{1,256}", re.ASCII)


async def from_own_client(request: Request) -> None:
    """Pass for a call of the API that changes something; raises PolicyRefused ``request.cross_site``."""
    client = _one(request, CLIENT_HEADER)
    _require(client is not None and _PRINTABLE.fullmatch(client) is not None)
    _require(_media_type(request) == JSON)
    _require(_one(request, "Origin") in (None, _own_origin(request)))
    _require(_one(request, "Sec-Fetch-Site") in (None, *_OWN))


async def from_own_page(request: Request) -> None:
    """Pass for a form that a page of ours has posted; raises PolicyRefused ``request.cross_site``."""
    own = _own_origin(request)
    _require(own is not None and _one(request, "Origin") == own)
    _require(_one(request, "Sec-Fetch-Site") in (None, "same-origin"))
    _require(_media_type(request) == FORM)


def same_origin_only(request: Request, client_header: str) -> None:
    """Pass for a script of our own pages: the origin must be there; raises PolicyRefused ``request.cross_site``."""
    client, own = _one(request, client_header), _own_origin(request)
    _require(client is not None and _PRINTABLE.fullmatch(client) is not None)
    _require(own is not None and _one(request, "Origin") == own)
    _require(_one(request, "Sec-Fetch-Site") in (None, "same-origin"))


def _own_origin(request: Request) -> str | None:
    """The origin of ``web.url``; never what the request says of itself."""
    origin: str | None = request.app.state.origin
    return origin


def _one(request: Request, name: str) -> str | None:
    """The value of a header that may be there once."""
    found = request.headers.getlist(name)
    _require(len(found) <= 1)
    return found[0] if found else None


def _media_type(request: Request) -> str:
    """The media type without parameters (RFC 9110 section 8.3.1)."""
    return (_one(request, "Content-Type") or "").partition(";")[0].strip().lower()


def _require(condition: bool) -> None:  # noqa: FBT001 - reads as a sentence
    if not condition:
        raise PolicyRefused(
            "request.cross_site",
            "This request does not come from the bridge's own pages or programs.",
            "Begin on the bridge's page /link, or use ci-bridge.",
        )
