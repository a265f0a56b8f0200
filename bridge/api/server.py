"""Serves the application over TLS, and over a unix socket for a runner on the same machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from bridge.errors import RequestRefused
from bridge.settings import Web

IDLE_SECONDS: Final = 75
"""Longer than the executor's long poll, so that its one connection lives as long as its stage."""

MAX_CONNECTIONS: Final = 4096
MAX_HEADER_BYTES: Final = 64 * 1024
"""A Negotiate token with a large PAC is over the usual 16 KiB."""

BACKLOG: Final = 1024


class _Second(uvicorn.Server):
    """A server that leaves signals to the first one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(app: FastAPI, web: Web) -> None:
    """Serve until SIGTERM or SIGINT; raises RequestRefused ``web.no_tls`` where it would serve strangers in clear."""
    tls = web.tls_certificate is not None and web.tls_key is not None
    if not tls and web.host not in ("127.0.0.1", "::1"):
        raise RequestRefused(
            "web.no_tls",
            f"Web would listen on {web.host} without TLS.",
            "Set tls_certificate and tls_key, or listen on 127.0.0.1.",
        )
    os.umask(0o007)
    files = {"ssl_certfile": web.tls_certificate, "ssl_keyfile": web.tls_key} if tls else {}
    first = uvicorn.Server(_config(app, lifespan="on", **files))
    second = _Second(_config(app, lifespan="off")) if web.socket else None
    asyncio.run(_serve(first, second, web))


def _config(app: FastAPI, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=1,
        **more,
    )


async def _serve(first: uvicorn.Server, second: uvicorn.Server | None, web: Web) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_tcp_listener(web.host, web.port))
        if second is None or web.socket is None:
            await first.serve(sockets=[listener])
            return
        local = stack.enter_context(_unix_listener(web.socket))
        beside = asyncio.create_task(second.serve(sockets=[local]))
        await first.serve(sockets=[listener])
        second.should_exit = True
        await beside


def _tcp_listener(host: str, port: int) -> socket.socket:
    """Bind with the protocol named: asyncio sets TCP_NODELAY only on a socket that says that it is TCP."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    return listener


def _unix_listener(path: Path) -> socket.socket:
    """Bind with mode 0660: whoever may talk to it is in the group of the directory that it is in."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener.bind(str(path))
    path.chmod(0o660)
    listener.listen(BACKLOG)
    return listener
