"""``ci-bridge serve`` and ``ci-bridge broker``: the two processes."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.output import explained
from bridge.settings import DEFAULT_FILE, inherited_sockets, load

Config = Annotated[
    Path | None, typer.Option("--config", help=f"Settings file; default {DEFAULT_FILE}.", show_default=False)
]

FIRST_INHERITED = 3
"""sd_listen_fds(3), SD_LISTEN_FDS_START."""


@explained
def serve(
    config: Config = None,
    web_only: Annotated[bool, typer.Option("--web-only", help="Only web; the broker is a service of its own.")] = False,
) -> None:
    """Serve runners and nodes. As root, starts the broker too, and each of the two becomes its own user."""
    settings = load(config)
    if os.geteuid() == 0 and not web_only:
        from bridge.cli.supervise import Supervisor

        raise typer.Exit(Supervisor(settings, config or DEFAULT_FILE).run())
    from bridge.api.app import make_app, make_parts
    from bridge.api.server import serve as serve_web

    _guard_memory()
    serve_web(make_app(settings, make_parts(settings)), settings.web)


@explained
def broker(
    config: Config = None,
    listen_fd: Annotated[int | None, typer.Option("--listen-fd", hidden=True)] = None,
) -> None:
    """Run the process that holds the keytabs; it answers web on a unix socket."""
    from bridge.broker.main import serve as serve_broker
    from bridge.broker.server import listen

    settings = load(config)
    _guard_memory()
    if listen_fd is None and inherited_sockets() > 0:
        listen_fd = FIRST_INHERITED
    listener = listen(settings.broker.socket) if listen_fd is None else socket.socket(fileno=listen_fd)
    serve_broker(settings, listener)


def _guard_memory() -> None:
    """T27: no core file, and no other process of the same user reads our memory (prctl(2), PR_SET_DUMPABLE)."""
    import ctypes

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pr_set_dumpable = 4
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_dumpable, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
