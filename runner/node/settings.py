"""The node agent's settings, from ``/etc/ci-bridge/node.toml``."""

from __future__ import annotations

import os
import socket
import urllib.parse

from runner.executor import trusted_toml

REFUSAL_DIRECTORY = "/run/ci-bridge/refused"

_SCHEMA: dict[str, type] = {
    "bridge_url": str,
    "bridge_principal": str,
    "ca_file": str,
    "keytab": str,
    "node": str,
    "cache_directories": list,
    "cache_collections": list,
    "state_directory": str,
    "refusal_directory": str,
    "min_uid": int,
    "comment_prefix": str,
    "tool_directories": list,
}

COLLECTIONS = ("KEYRING:persistent:%{uid}", "KCM:%{uid}")
"""Collections of a user's caches that are no files, and that can be allowed."""

TOOL_DIRECTORIES = ["/usr/bin", "/bin", "/usr/local/bin"]


class Settings:
    """What the cluster's administrator settled; raises Untrusted for a file that can't be used.

    bridge_url: ``https://host[:port]``. bridge_principal: whom the bridge must prove to be; ``HTTP/<host>`` in the
    default realm unless given. ca_file: PEM file of the authority that signed the bridge's certificate. keytab: holds
    this node's ``host/`` key. node: fully qualified name of this node. cache_directories: where a ticket cache may be
    written; ``%{uid}`` stands for the user's. cache_collections: which of COLLECTIONS may be written to; none unless
    given. state_directory: remembers which jobs have a cache here, over a boot if
    the caches outlive one. refusal_directory: where the job's wrapper looks for a word from the Prolog; the wrapper
    knows the default only. min_uid: no cache is written for a lower uid. comment_prefix: a job whose comment begins
    with it is the bridge's, where its name is not known. tool_directories: where scontrol, squeue and lfs are.
    """

    def __init__(self, path: str) -> None:
        values = trusted_toml.read(path, _SCHEMA)
        self.bridge_url = str(values.get("bridge_url", "")).rstrip("/")
        host = urllib.parse.urlsplit(self.bridge_url).hostname or ""
        self.bridge_principal = str(values.get("bridge_principal", "")) or f"HTTP/{host}"
        self.ca_file = str(values.get("ca_file", ""))
        self.keytab = str(values.get("keytab", "/etc/krb5.keytab"))
        self.node = str(values.get("node", "")) or socket.getfqdn(os.uname().nodename)
        directories = values.get("cache_directories", ["/tmp"])
        self.cache_directories = [str(entry) for entry in directories] if isinstance(directories, list) else []
        collections = values.get("cache_collections", [])
        self.cache_collections = [str(entry) for entry in collections] if isinstance(collections, list) else []
        self.state_directory = str(values.get("state_directory", "/var/lib/ci-bridge-node"))
        self.refusal_directory = str(values.get("refusal_directory", REFUSAL_DIRECTORY))
        self.min_uid = int(str(values.get("min_uid", 1000)))
        self.comment_prefix = str(values.get("comment_prefix", "ci-bridge"))
        tools = values.get("tool_directories", TOOL_DIRECTORIES)
        self.tool_directories = [str(entry) for entry in tools] if isinstance(tools, list) else []
        if not all(entry.startswith("/") for entry in self.tool_directories):
            raise trusted_toml.Untrusted(f"{path}: tool_directories must be absolute paths")
        if not self.bridge_url.startswith("https://") or not self.ca_file:
            raise trusted_toml.Untrusted(f"{path}: bridge_url must be https:// and ca_file must be set")
        if not self.cache_directories or not all(entry.startswith("/") for entry in self.cache_directories):
            raise trusted_toml.Untrusted(f"{path}: cache_directories must be absolute paths")
        if not all(entry in COLLECTIONS for entry in self.cache_collections):
            raise trusted_toml.Untrusted(f"{path}: cache_collections may hold {' and '.join(COLLECTIONS)}")
