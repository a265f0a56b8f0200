"""Bounds on what a stranger can have the web process read: the body's size and the Host header, before any route."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.api.problems import problem
from bridge.errors import RequestRefused
from runner.wire import MAX_DATA_BYTES

MAX_BODY_BYTES: Final = 256 * 1024
"""T38; every body but a stage's script is a small JSON document."""

MAX_SCRIPT_BYTES: Final = MAX_DATA_BYTES

MAX_ADMIN_BYTES: Final = 6 * 1024 * 1024
"""Below ``/v1/admin/``: the files of a policy bundle, as JSON."""


class BodyLimit:
    """ASGI middleware: refuses a longer body by its length header, and cuts one that grows past the bound."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of the ASGI server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bound = _bound(scope)
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared) > bound:
            await _refuse(bound)(scope, receive, send)
            return
        seen = 0

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > bound:
                # The only error that FastAPI passes on from the reading of a body; ``problems`` renders it.
                raise HTTPException(413)
            return message

        await self._app(scope, bounded, send)


def _bound(scope: Scope) -> int:
    """Says only how much is read: who may ask for what is decided at the route, never by the path."""
    if scope["path"].startswith("/v1/admin/"):
        return MAX_ADMIN_BYTES
    return MAX_SCRIPT_BYTES if scope["method"] == "PUT" else MAX_BODY_BYTES


class KnownHost:
    """ASGI middleware: answers only requests whose one Host header is a name of ours (T39)."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of the ASGI server."""
        if scope["type"] == "http":
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if len(given) != 1 or _without_port(given[0]) not in self._hosts:
                await _refuse_host(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


async def _refuse_host(scope: Scope, receive: Receive, send: Send) -> None:
    error = RequestRefused(
        "request.host", "The bridge does not go by this name.", "Use the bridge's address as its operators gave it."
    )
    await problem(error, status=400)(scope, receive, send)


def _refuse(bound: int) -> ASGIApp:
    return problem(
        RequestRefused("request.too_large", f"The request's body is over {bound} bytes.", "Send less."), status=413
    )
