"""Where a login node is, and by which names it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SSH_PORT: Final = 22


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a login node is. ``host`` is its name for Kerberos and for known_hosts; ``address`` is where to connect."""

    host: str
    port: int
    realm: str
    address: str | None = None
    """IP address to connect to instead of looking ``host`` up."""

    @property
    def known_as(self) -> str:
        """The node's name in a known_hosts file (sshd(8), SSH_KNOWN_HOSTS)."""
        return self.host if self.port == _SSH_PORT else f"[{self.host}]:{self.port}"
