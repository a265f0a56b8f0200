"""Dresses one host: its name, its root directory over the machine's, and what it shares; runs as the host's PID 1.

The machine's root is the lower layer of an overlay: a host may write where it likes and the machine sees nothing of it.
Standard library only, because PID 1 imports it.
"""

from __future__ import annotations

import socket
import uuid
from pathlib import Path
from typing import Any

from realm import kernel

MASKED = ("/var/lib", "/var/log", "/var/spool", "/var/cache", "/root", "/srv")
"""Directories that start empty on every host, so that nothing of the machine's own services shows."""

VOLATILE = {"/run": "0755", "/var/tmp": "1777", "/dev/shm": "1777"}
"""Directories that are empty after each boot; so is /tmp, unless the order says that it outlives this one."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SHARED = {"/home": 0o755, "/builds": 0o1777}


def build(directory: Path, order: dict[str, Any]) -> None:
    """Make the calling process's namespaces into the host `order["name"]`. Raises OSError with the mount that failed.

    `order` holds name, fqdn, shares_home (bool), keep_tmp (bool: /tmp is that of the last boot) and keep: absolute
    paths that must stay visible although a private directory would cover them, read-only.
    """
    socket.sethostname(order["fqdn"])
    store = directory / "fs"
    own = store / "hosts" / order["name"]
    root = _overlay(own)
    _system(root)
    _boot_id(own, root)
    if not order["keep_tmp"]:
        _set_aside(own, "/tmp")
    _private(own, root, "/tmp", 0o1777)
    for path in MASKED:
        if Path(path).is_dir():
            _private(own, root, path, 0o700 if path == "/root" else 0o755)
    for path, mode in SHARED.items():
        _private(store / "shared" if order["shares_home"] else own, root, path, mode)
    for path in order["keep"]:
        # Ancestors may be new here; the host's users must be able to pass through them.
        _under(root, path).mkdir(parents=True, exist_ok=True)
        kernel.bind(path, _under(root, path), read_only=True)
        _let_through(root, path)
    kernel.enter_root(root)


def _under(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _overlay(own: Path) -> Path:
    upper, work, root = own / "upper", own / "work", own / "root"
    for path in (upper, work, root):
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    kernel.mount("overlay", root, "overlay", 0, f"lowerdir=/,upperdir={upper},workdir={work}")
    return root


def _system(root: Path) -> None:
    kernel.mount("proc", root / "proc", "proc")
    kernel.bind("/sys", root / "sys", recursive=True)
    kernel.bind("/dev", root / "dev")
    kernel.mount("devpts", root / "dev/pts", "devpts", kernel.MS_NOSUID, "gid=5,mode=620,ptmxmode=666")
    for path, mode in VOLATILE.items():
        _under(root, path).mkdir(parents=True, exist_ok=True)
        kernel.mount("tmpfs", _under(root, path), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode={mode}")
    (root / "run/lock").mkdir()


def _boot_id(own: Path, root: Path) -> None:
    """Give the host an id of this boot, since the kernel's own tells nothing of a host that is not a machine."""
    boot_id = own / "boot_id"
    boot_id.unlink(missing_ok=True)
    boot_id.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    boot_id.chmod(0o444)
    kernel.bind(boot_id, _under(root, BOOT_ID), read_only=True)


def _set_aside(own: Path, path: str) -> None:
    """Have a private directory start anew; by renaming, so that nothing that was ever bound into it is removed."""
    last = _source(own, path)
    if last.is_dir():
        lost = own / "lost" / str(uuid.uuid4())
        lost.parent.mkdir(mode=0o700, exist_ok=True)
        last.rename(lost)


def _source(base: Path, path: str) -> Path:
    return base / "dirs" / path.strip("/").replace("/", "-")


def _private(base: Path, root: Path, path: str, mode: int) -> None:
    source = _source(base, path)
    if not source.is_dir():
        source.mkdir(parents=True)
        source.chmod(mode)
    _under(root, path).mkdir(parents=True, exist_ok=True)
    kernel.bind(source, _under(root, path))


def _let_through(root: Path, path: str) -> None:
    """Let every user pass /root when something below it must stay visible; names in it stay unlisted."""
    if path.startswith("/root/"):
        (root / "root").chmod(0o711)
