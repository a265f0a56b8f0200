"""The console's cookie: what web sets, and when one that comes back counts (T41).

A browser sends it with whatever any page asks for, so that it counts for a change only where the request also shows
that one of our pages made it: by the exact ``Origin``, and by a header that no page of another site can send. Its name
makes browsers keep it to this one host, over TLS, for all paths (RFC 6265bis section 4.1.3.2, ``__Host-``).
"""

from __future__ import annotations

import re
from typing import Final

from fastapi import Request

from bridge.api.cross_site import CLIENT_HEADER, same_origin_only
from bridge.errors import RequestRefused
from bridge.people.caller import session_over

COOKIE: Final = "__Host-ci-bridge"
IDLE_SECONDS: Final = 30 * 60
"""As long as the token in it is good, see ``people.sessions``."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
"""RFC 9110 section 9.2.1, of those that we answer."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,3072}\.[A-Za-z0-9_-]{43}", re.ASCII)
_FIXED: Final = "Path=/; Secure; HttpOnly; SameSite=Strict"


def kept(token: str) -> str:
    """Return the ``Set-Cookie`` that gives a browser its session's token."""
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("not a session's token")
    return f"{COOKIE}={token}; Max-Age={IDLE_SECONDS}; {_FIXED}"


def forgotten() -> str:
    """Return the ``Set-Cookie`` that takes it away again."""
    return f"{COOKIE}=; Max-Age=0; {_FIXED}"


def session_of(request: Request) -> str | None:
    """Return the session's token in the request's cookie; None without one.

    Raises TokenRefused ``caller.session`` for a value that is no token's, RequestRefused ``caller.ambiguous`` for two,
    and PolicyRefused ``request.cross_site`` where a change may come from another site's page.
    """
    found = _values(request)
    if not found:
        return None
    if len(found) > 1:
        raise ambiguous()
    if _TOKEN.fullmatch(found[0]) is None:
        raise session_over("form")
    if request.method not in SAFE_METHODS:
        same_origin_only(request, CLIENT_HEADER)
    return found[0]


def shows_cookie(request: Request) -> bool:
    """Whether there is a cookie of ours, whatever it holds."""
    return bool(_values(request))


def ambiguous() -> RequestRefused:
    """The answer to two credentials in one request: nobody guesses which of them was meant."""
    return RequestRefused(
        "caller.ambiguous",
        "The request shows two credentials.",
        "Send one: an Authorization header, or the console's cookie, once.",
    )


def _values(request: Request) -> list[str]:
    """Every value of the cookie, from all ``Cookie`` headers (RFC 6265 section 4.2.1), by its name letter by letter."""
    pairs = [pair.strip() for header in request.headers.getlist("Cookie") for pair in header.split(";")]
    return [pair.partition("=")[2] for pair in pairs if pair.partition("=")[0].strip() == COOKIE]
