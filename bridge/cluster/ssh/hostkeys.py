"""The pinned host keys of the login nodes; a key that is not pinned is never accepted and never added (T33)."""

from __future__ import annotations

from pathlib import Path

import paramiko

from bridge.cluster.ssh.endpoint import Endpoint
from bridge.errors import Defect


class HostKeys:
    """The pinned keys of the login nodes, from a file in the format of sshd(8), SSH_KNOWN_HOSTS; read once."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises Defect ``ssh.known_hosts`` where that can't be done."""
        try:
            self._keys = paramiko.HostKeys(str(path))
        except (OSError, paramiko.SSHException) as error:
            raise Defect(
                "ssh.known_hosts",
                "The bridge has no usable list of the login nodes' host keys.",
                "An operator repairs the known_hosts file in the bridge's settings.",
                path=str(path),
                why=str(error),
            ) from error

    def key_types(self, endpoint: Endpoint) -> list[str]:
        """Give the types of the keys that are known for a node, for the offer in the key exchange."""
        known = self._keys.lookup(endpoint.known_as)
        types = list(known.keys()) if known is not None else []
        return [new for old in types for new in (("rsa-sha2-512", "rsa-sha2-256") if old == "ssh-rsa" else (old,))]

    def require(self, endpoint: Endpoint, key: paramiko.PKey) -> None:
        """Pass if this key is pinned for the node; raises Defect ``ssh.host_key``."""
        if not self._keys.check(endpoint.known_as, key):
            raise Defect(
                "ssh.host_key",
                "The login node did not show the host key that it is known by.",
                "Do not retry; an operator finds out whether the node was reinstalled or someone is in between.",
                host=endpoint.host,
                fingerprint=key.fingerprint,
            )
