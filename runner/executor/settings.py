"""The executor's settings, from ``/etc/ci-bridge/executor.toml``."""

from __future__ import annotations

from typing import cast

from runner.executor import trusted_toml
from runner.executor.failures import outage

_SCHEMA: dict[str, type] = {
    "bridge_url": str,
    "ca_file": str,
    "id_token": str,
    "cluster": str,
    "connect_seconds": int,
    "answer_seconds": int,
    "lost_connection_seconds": int,
    "cleanup_seconds": int,
}


class Settings:
    """What the runner's administrator settled; see ``load``."""

    __slots__ = (
        "answer_seconds",
        "bridge_url",
        "ca_file",
        "cleanup_seconds",
        "cluster",
        "connect_seconds",
        "id_token",
        "lost_connection_seconds",
    )

    def __init__(self, values: dict[str, object]) -> None:
        """Take checked values.

        bridge_url: ``https://host[:port]`` or ``unix:/path``. ca_file: PEM file of the authority that signed the
        bridge's certificate; empty for the system's. id_token: name of the variable that holds the id_token.
        cluster: name of the cluster, or None for the bridge's default. connect_seconds: for the connection and each
        piece that is sent. answer_seconds: for each piece of an answer; more than the 20 s that the bridge may wait.
        lost_connection_seconds: how long a stage goes on trying when the bridge does not answer. cleanup_seconds: the
        same for cleanup.
        """
        self.bridge_url = cast(str, values["bridge_url"])
        self.ca_file = cast(str, values.get("ca_file", ""))
        self.id_token = cast(str, values.get("id_token", "CI_BRIDGE_TOKEN"))
        self.cluster = cast("str | None", values.get("cluster"))
        self.connect_seconds = cast(int, values.get("connect_seconds", 10))
        self.answer_seconds = cast(int, values.get("answer_seconds", 60))
        self.lost_connection_seconds = cast(int, values.get("lost_connection_seconds", 120))
        self.cleanup_seconds = cast(int, values.get("cleanup_seconds", 60))


def load(path: str) -> Settings:
    """Read and check the settings file; raises CallFailed (outage ``executor.settings``)."""
    try:
        values = trusted_toml.read(path, _SCHEMA)
        _check(values, path)
    except trusted_toml.Untrusted as error:
        raise outage(
            "executor.settings", f"The executor is set up wrongly: {error}.", "Ask the runner's administrator."
        ) from error
    return Settings(values)


def _check(values: dict[str, object], path: str) -> None:
    url = str(values.get("bridge_url", ""))
    if not url.startswith(("https://", "unix:/")) or not url.isprintable() or " " in url:
        raise trusted_toml.Untrusted(f"{path}: bridge_url must be https://host[:port] or unix:/path")
    name = values.get("id_token", "CI_BRIDGE_TOKEN")
    if not str(name).isidentifier():
        raise trusted_toml.Untrusted(f"{path}: id_token must be the name of a variable")
    for key in _SCHEMA:
        if key.endswith("_seconds") and not 0 < cast(int, values.get(key, 1)) <= 3600:
            raise trusted_toml.Untrusted(f"{path}: {key} must be from 1 to 3600")
