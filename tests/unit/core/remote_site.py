"""The bridge over real HTTPS for the commands that ask it; only the Kerberos exchange is pretended."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from bench import Broker, wait_until
from test_cli import run
from typer.testing import Result

from bridge.api.app import make_app
from bridge.api.server import _config
from bridge.errors import Defect
from tests.api.people_web import LINKS, MALLORY, ROLES, Watched, make_parts, settings
from tests.fakes import REALM
from tests.unit.oidc.https_server import _certificate


@dataclass(frozen=True)
class FakeProof:
    """``kerberos.initiating.Proof`` for ``tests.fakes.FakeAcceptor``."""

    principal: str
    binding: bytes | None = None
    header: str = field(init=False)

    def __post_init__(self) -> None:
        made_for = "" if self.binding is None else f"#{self.binding.hex()}"
        object.__setattr__(self, "header", f"Negotiate {self.principal}{made_for}")

    def check(self, authenticate: str | None) -> None:
        """See Proof."""
        if authenticate != "Negotiate " + base64.b64encode(f"reply to {self.principal}".encode()).decode():
            raise Defect("kerberos.server_unproven", "The server has proven nothing.", "Do not believe it.")


class FakeTickets:
    """Who has a ticket now; takes the place of ``kerberos.initiating.Initiator``."""

    def __init__(self) -> None:
        self.person = "alice"
        self.servers: list[tuple[str, str | None]] = []

    def __call__(self, host: str, realm: str | None) -> FakeTickets:
        self.servers.append((host, realm))
        return self

    def begin(self, binding: bytes | None = None) -> FakeProof:
        """See Initiator."""
        return FakeProof(f"{self.person}@{REALM}", binding)


@dataclass
class RemoteSite:
    """A bridge, the commands that ask it, and who runs them."""

    broker: Broker
    client: Watched
    url: str
    ca_file: Path
    tickets: FakeTickets

    def run(self, who: str, *words: str) -> Result:
        """Run a command as somebody."""
        self.tickets.person = who
        return run(*words)

    def shown(self, who: str, *words: str) -> Any:
        """What a command prints with --json."""
        result = self.run(who, *words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


def client_file(path: Path, **members: Any) -> Path:
    """Write a client file."""
    path.write_text("".join(f"{name} = {json.dumps(str(value))}\n" for name, value in members.items()))
    return path


@contextmanager
def remote_site(broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSite]:
    """Serve on a free port with a certificate of its own, which the client file of the commands trusts."""
    broker.directory.accounts["mallory"] = MALLORY
    broker.use(accounts=LINKS, roles=ROLES)
    certificate, key = _certificate(directory)
    tickets = FakeTickets()
    with broker.serving(directory / "b.sock"), socket.create_server(("127.0.0.1", 0)) as listener:
        client = Watched(directory / "b.sock")
        app = make_app(settings(public_hosts=["localhost"]), make_parts(broker, client))
        server = uvicorn.Server(_config(app, lifespan="on", ssl_certfile=certificate, ssl_keyfile=key))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started, "the start of the server")
            url = f"https://localhost:{listener.getsockname()[1]}"
            file = client_file(directory / "client.toml", server=url, ca_file=certificate)
            monkeypatch.setenv("CI_BRIDGE_CLIENT", str(file))
            monkeypatch.delenv("CI_BRIDGE_SERVER", raising=False)
            monkeypatch.setattr("bridge.cli.remote.Initiator", tickets)
            yield RemoteSite(broker, client, url, certificate, tickets)
        finally:
            server.should_exit = True
            thread.join(20)
