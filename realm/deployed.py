"""Installs the driver's programs on a host as a site's package would: root's, below /usr/lib/ci-bridge."""

from __future__ import annotations

import shutil
from pathlib import Path

from realm.host import Host
from realm.workspace import CHECKOUT

PREFIX = "/usr/lib/ci-bridge"
_SLURM_HOOKS = {"prolog": f"{PREFIX}/slurm-prolog", "epilog": f"{PREFIX}/slurm-epilog"}


def install(host: Host) -> None:
    """Copy the checkout's runner package, launchers and Slurm hooks to `host`; what the checkout lacks is left out."""
    _copy_package(host)
    for launcher in sorted(_files(CHECKOUT / "deploy" / "bin")):
        host.write(f"{PREFIX}/{launcher.name}", launcher.read_bytes(), mode=0o755)
    for name, path in slurm_hooks().items():
        host.write(path, (CHECKOUT / "deploy" / "slurm" / name).read_bytes(), mode=0o755)


def slurm_hooks() -> dict[str, str]:
    """The Slurm hooks that the checkout has: "prolog" and "epilog" to their paths on the nodes."""
    return {name: path for name, path in _SLURM_HOOKS.items() if (CHECKOUT / "deploy" / "slurm" / name).is_file()}


def _copy_package(host: Host) -> None:
    target = host.path(f"{PREFIX}/runner")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(CHECKOUT / "runner", target, ignore=shutil.ignore_patterns("__pycache__"), symlinks=False)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
