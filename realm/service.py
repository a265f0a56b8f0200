"""A service is data: what to start on which host, when it is ready, and which ports it alone listens on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from realm.host import Host

Probe = Callable[["Host"], bool]
"""Asks a service a real question and says whether it answered; called until it does, so it must not block for long."""


@dataclass(frozen=True)
class Runtime:
    """A directory below /run that a service needs each time it starts, as systemd's RuntimeDirectory= makes it."""

    path: str
    owner: str = "root"
    mode: int = 0o755


@dataclass(frozen=True)
class Service:
    """One daemon in the foreground.

    `argv` is never a shell's; `user` None means root. `ready` is asked until true, at most `within` seconds. `tcp` and
    `udp` are ports on which exactly one socket must listen once it is ready. `log` is where its output goes on the host
    (default /var/log/realm/NAME.log). `depends` names services that must be up before. `runtime` are directories that a
    reboot loses. `after_boot` is added to `argv` when the service starts because its host was switched on again.
    """

    name: str
    host: str
    argv: tuple[str, ...]
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cwd: str = "/"
    ready: Probe | None = None
    within: float = 60.0
    tcp: tuple[int, ...] = ()
    udp: tuple[int, ...] = ()
    log: str = ""
    depends: tuple[str, ...] = ()
    runtime: tuple[Runtime, ...] = ()
    after_boot: tuple[str, ...] = ()
    stop_seconds: float = 5.0

    @property
    def log_path(self) -> str:
        """Absolute path of the log on the host."""
        return self.log or f"/var/log/realm/{self.name}.log"


def answers(*argv: str, user: str | None = None, expect: str = "") -> Probe:
    """A probe: the command ends with 0 within 10 seconds, and `expect` is in its output."""

    def probe(host: Host) -> bool:
        done = host.run(list(argv), user=user, check=False, timeout=10)
        return done.returncode == 0 and expect.encode() in done.stdout

    return probe


def connects(port: int, *, banner: bytes = b"") -> Probe:
    """A probe: a TCP connection to the host's own address is accepted, and its first bytes are `banner`."""

    def probe(host: Host) -> bool:
        try:
            with host.connect(port, timeout=2) as connection:
                return not banner or connection.recv(len(banner)) == banner
        except OSError:
            return False

    return probe


def listens(port: int) -> Probe:
    """A probe: somebody listens on the TCP port, for daemons that take a bare connection for an attack or a client."""
    return lambda host: bool(host.listeners("tcp", port))


def all_of(*probes: Probe) -> Probe:
    """A probe: every one of `probes` is true."""
    return lambda host: all(probe(host) for probe in probes)
