"""Headers that every answer has: its type is not guessed, it is not framed, not kept, and loads nothing."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ALWAYS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with that, browsers say "Origin: null" on our own forms (Fetch, "append a request Origin").
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

UNLESS_SAID: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""A page that needs more says so itself."""


class SafeHeaders:
    """ASGI middleware: adds the headers to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of the ASGI server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(ALWAYS)
                for name, value in UNLESS_SAID.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, safe)
