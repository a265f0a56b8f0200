"""Starts the stand-in: `python -m realm.gitlab --cert F --key F --external-url URL --repos DIR --control SOCKET`."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from realm.gitlab.app import public_app
from realm.gitlab.control import control_app
from realm.gitlab.faults import Faults
from realm.gitlab.instance import Instance
from realm.gitlab.keys import KeySet
from realm.gitlab.repositories import Repositories
from realm.gitlab.requestlog import RequestLog
from realm.gitlab.sessions import Sessions
from realm.gitlab.store import Store
from realm.runner.parent import end_with_parent


class _Server(uvicorn.Server):
    """A server that leaves signals to `_serve`, because two of them share one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main() -> int:
    """Serve until SIGTERM or SIGINT; prints one JSON line with the port when both sockets accept."""
    options = _parser().parse_args()
    if options.end_with_parent:
        end_with_parent()
    public = _public_socket(options.host, options.port)
    port = public.getsockname()[1]
    control = _control_socket(options.control)
    for folder in (options.repos, options.repos / "artifacts"):
        folder.mkdir(parents=True, exist_ok=True)
    instance = Instance(
        external_url=options.external_url.replace("{port}", str(port)).rstrip("/"),
        store=Store(),
        keys=KeySet(),
        repositories=Repositories(options.repos.resolve()),
        artifacts_dir=options.repos.resolve() / "artifacts",
        faults=Faults(),
        requests=RequestLog(),
        sessions=Sessions(),
        trace_update_seconds=options.trace_update_seconds,
    )
    servers = [
        (_server(public_app(instance), certificate=options.cert, key=options.key), public),
        (_server(control_app(instance)), control),
    ]
    ready = {"ready": True, "port": port, "external_url": instance.external_url, "control": str(options.control)}
    try:
        asyncio.run(_serve(servers, json.dumps(ready)))
    finally:
        options.control.unlink(missing_ok=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m realm.gitlab", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=443, help="port to listen on; 0 takes a free one")
    parser.add_argument("--cert", type=Path, required=True, help="certificate chain, PEM")
    parser.add_argument("--key", type=Path, required=True, help="private key, PEM")
    parser.add_argument("--external-url", required=True, help="address and OIDC issuer; {port} is filled in")
    parser.add_argument("--repos", type=Path, required=True, help="folder for repositories and artifacts")
    parser.add_argument("--control", type=Path, required=True, help="unix socket of the control API")
    parser.add_argument("--trace-update-seconds", type=int, default=3, help="X-GitLab-Trace-Update-Interval")
    parser.add_argument("--end-with-parent", action="store_true", help="stop when the starting process ends")
    return parser


def _server(app: FastAPI, certificate: Path | None = None, key: Path | None = None) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
    )


def _public_socket(host: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets that say they are TCP; without it an answer takes 40 ms longer.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(256)
    return listener


def _control_socket(path: Path) -> socket.socket:
    """A listening unix socket that only its owner can open from the moment it exists."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(64)
    return listener


async def _serve(servers: list[tuple[_Server, socket.socket]], ready: str) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, [server for server, _ in servers])
    tasks = [asyncio.create_task(server.serve(sockets=[sock])) for server, sock in servers]
    while not all(server.started for server, _ in servers) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.01)
    sys.stdout.write(ready + "\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)


def _stop(servers: list[_Server]) -> None:
    for server in servers:
        server.should_exit = True
        # Idle keep-alive connections of clients would otherwise hold the process up.
        server.force_exit = True


if __name__ == "__main__":
    raise SystemExit(main())
