"""A second login node: the login node's sshd on a compute node, with a host key of its own and that node's keytab."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from realm import Realm
from realm.host import kill_session
from realm.principals import BRIDGE, DELEGATION_TARGETS
from realm.topology import KRB_REALM, spec

HOST = "node1"
NAME = "node1.realm.test"
ADDRESS = spec(HOST).address
TARGET = f"host/{NAME}"
PRINCIPAL = f"{BRIDGE}@{KRB_REALM}"
_CONFIG = "/etc/ssh/second_sshd_config"
_KEY = "/etc/ssh/second_key"


@contextmanager
def delegated_to_both(realm: Realm) -> Iterator[None]:
    """Let the KDC delegate to the second node too."""
    realm.kdc.set_delegation_targets(PRINCIPAL, (*DELEGATION_TARGETS, TARGET))
    try:
        yield
    finally:
        realm.kdc.set_delegation_targets(PRINCIPAL, DELEGATION_TARGETS)


@contextmanager
def second_login(realm: Realm, key: Path, *extra: str) -> Iterator[None]:
    """Run sshd on the second node with this host key, and its certificate where ``KEY-cert.pub`` is there."""
    host = realm.host(HOST)
    config = realm.host("login").read("/etc/ssh/realm_sshd_config").decode()
    config = re.sub(r"(?m)^ListenAddress .*$", f"ListenAddress {ADDRESS}", config)
    lines = [f"HostKey {_KEY}", *extra]
    host.write(_KEY, key.read_bytes(), mode=0o600)
    certificate = key.with_name(f"{key.name}-cert.pub")
    if certificate.exists():
        host.write(f"{_KEY}-cert.pub", certificate.read_bytes())
        lines.append(f"HostCertificate {_KEY}-cert.pub")
    host.write(_CONFIG, re.sub(r"(?m)^HostKey .*$", "\n".join(lines), config), mode=0o600)
    host.mkdir("/run/sshd")
    process = host.popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", _CONFIG], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _wait(realm, process)
        yield
    finally:
        kill_session(process)
        process.communicate(timeout=20)


def _wait(realm: Realm, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while True:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1].decode())
        try:
            with realm.host(HOST).connect(22, timeout=2) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        assert time.monotonic() < end, "the second sshd does not answer"
        time.sleep(0.05)


def new_key(directory: Path, name: str) -> Path:
    """Make an Ed25519 key pair with ssh-keygen; returns the private key's file."""
    return _keygen(directory / name, ["-t", "ed25519", "-N", "", "-q", "-f", str(directory / name)])


def certify(authority: Path, key: Path, *options: str, names: Sequence[str] = (NAME,), user: bool = False) -> Path:
    """Sign a key with ssh-keygen, as ``KEY-cert.pub``; ``options`` are more of ssh-keygen's."""
    kind = [] if user else ["-h"]
    principals = ["-n", ",".join(names)] if names else []
    argv = ["-q", "-s", str(authority), "-I", "second", *kind, *principals, *options, f"{key}.pub"]
    return _keygen(key.with_name(f"{key.name}-cert.pub"), argv)


def _keygen(made: Path, options: list[str]) -> Path:
    subprocess.run(["/usr/bin/ssh-keygen", *options], check=True, stdin=subprocess.DEVNULL, timeout=20)
    return made
