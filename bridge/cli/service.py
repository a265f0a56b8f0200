"""``ci-bridge serve`` and ``ci-bridge broker``: the two processes."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path
from typing import Annotated

import structlog
import typer

from bridge import hardening
from bridge.cli.output import explained
from bridge.settings import DEFAULT_FILE, inherited_sockets, load

Config = Annotated[
    Path | None, typer.Option("--config", help=f"Settings file; default {DEFAULT_FILE}.", show_default=False)
]

FIRST_INHERITED = 3
"""sd_listen_fds(3), SD_LISTEN_FDS_START."""

log = structlog.get_logger()


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
    hardening.close_off()
    from bridge.api.app import make_app, make_parts
    from bridge.api.server import serve as serve_web

    serve_web(make_app(settings, make_parts(settings)), settings.web)


@explained
def broker(
    config: Config = None,
    listen_fd: Annotated[int | None, typer.Option("--listen-fd", hidden=True)] = None,
) -> None:
    """Run the process that holds the keytabs; it answers web on a unix socket."""
    settings = load(config)
    hardening.close_off()
    unlocked = hardening.lock_memory()
    if unlocked is not None:
        log.warning("broker.memory_not_locked", reason=unlocked)
    from bridge.broker.main import serve as serve_broker
    from bridge.broker.place import require_listening
    from bridge.broker.server import listen

    if listen_fd is None and inherited_sockets() > 0:
        listen_fd = FIRST_INHERITED
    listener = listen(settings.broker.socket) if listen_fd is None else socket.socket(fileno=listen_fd)
    require_listening(listener, frozenset({pwd.getpwnam(settings.broker.web_user).pw_uid}))
    serve_broker(settings, listener)
