"""ASGI layers in front of the application: project paths, faults, and the request log."""

import asyncio
import json
import re
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from realm.gitlab.faults import Fault
from realm.gitlab.instance import Instance
from realm.gitlab.requestlog import SeenRequest, credential_kind

_PROJECT = re.compile(rb"^(/api/v4/projects/)([^/?]+)(.*)$")
OVERSIZE_BYTES = 16 * 1024 * 1024


class ProjectPaths:
    """Turns a URL-encoded `namespace%2Fproject` into the project's id, which routing on decoded paths can not do."""

    def __init__(self, app: ASGIApp, instance: Instance) -> None:
        self._app = app
        self._instance = instance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rewrite the path where needed and pass on."""
        matched = _PROJECT.match(scope.get("raw_path", b"")) if scope["type"] == "http" else None
        if matched and not matched[2].isdigit():
            project = self._instance.store.project_by_path(unquote(matched[2].decode()))
            number = project.id if project else 0
            scope = {**scope, "path": f"{matched[1].decode()}{number}{unquote(matched[3].decode())}"}
        await self._app(scope, receive, send)


class Recorder:
    """Logs each request's method, path and status."""

    def __init__(self, app: ASGIApp, instance: Instance) -> None:
        self._app = app
        self._instance = instance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Watch for the response's status."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = credential_kind(dict(scope["headers"]))
                self._instance.requests.add(SeenRequest(scope["method"], scope["path"], status, kind))
            await send(message)

        await self._app(scope, receive, watch)


class Misbehaviour:
    """Lets requests meet the armed faults."""

    def __init__(self, app: ASGIApp, instance: Instance) -> None:
        self._app = app
        self._instance = instance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do the fault's action, or pass on."""
        fault = self._instance.faults.take(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, receive, send)
        elif fault.action in ("500", "503", "401"):
            await _drain(receive)
            await _answer(send, int(fault.action), b'{"message":"injected fault"}')
        elif fault.action == "redirect":
            target = fault.details.get("target", "https://other.invalid/keys")
            await _answer(send, 302, b"", [(b"location", str(target).encode())])
        elif fault.action == "garbage":
            await _answer(send, 200, b"<html>not json</html>")
        elif fault.action == "drop":
            await _drop(send)
        elif fault.action == "slow":
            await asyncio.sleep(float(fault.details.get("seconds", 10)))
            await self._app(scope, receive, send)
        else:
            await self._rewritten(fault, scope, receive, send)

    async def _rewritten(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        start: dict[str, Any] = {}
        body = bytearray()

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, collect)
        if fault.action == "lost":
            await _answer(send, 502, b'{"message":"injected fault"}')
        elif fault.action == "verbatim":
            text = str(fault.details["body"]).replace("{answer}", body.decode())
            await _answer(send, int(fault.details.get("status", 200)), text.encode())
        else:
            await _answer(send, int(start["status"]), _changed(fault, bytes(body)))


def _changed(fault: Fault, body: bytes) -> bytes:
    if fault.action == "oversize":
        # Leading white space keeps it valid JSON (RFC 8259 section 2), so that only a size limit can refuse it.
        return b" " * int(fault.details.get("bytes", OVERSIZE_BYTES)) + body
    document = json.loads(body)
    return json.dumps(_merged(document, fault.details.get("changes", {}))).encode()


def _merged(document: Any, changes: Any) -> Any:
    """JSON merge patch (RFC 7396)."""
    if not isinstance(changes, dict) or not isinstance(document, dict):
        return changes
    kept = {key: value for key, value in document.items() if not (key in changes and changes[key] is None)}
    return kept | {key: _merged(kept.get(key, {}), value) for key, value in changes.items() if value is not None}


async def _drain(receive: Receive) -> None:
    while (await receive()).get("more_body"):
        continue


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    lines = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


async def _drop(send: Send) -> None:
    """Promise more bytes than are sent; the server then closes the connection on the client."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]},
    )
    await send({"type": "http.response.body", "body": b"{", "more_body": True})
    raise ConnectionError("injected fault: connection dropped")
