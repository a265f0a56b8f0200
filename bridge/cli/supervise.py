"""Run broker and web side by side on one machine, each under its own user; what systemd does with two units.

Started as root, because it alone can make the broker's socket belong to web's user and then become neither of them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from bridge.broker.server import BACKLOG, listen
from bridge.errors import RequestRefused
from bridge.settings import Settings

BROKER_USER: Final = "ci-bridge-broker"
STOP_SECONDS: Final = 10


class Supervisor:
    """Starts both processes, ends both as soon as one ends, and passes SIGTERM on."""

    def __init__(self, settings: Settings, config: Path) -> None:
        self._settings = settings
        self._config = config
        self._children: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Run until a child ends or a signal comes; return the exit code to leave with."""
        broker_user, web_user = _account(BROKER_USER), _account(self._settings.broker.web_user)
        self._directories(broker_user, web_user)
        self._once(web_user, "db", "upgrade")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, self._on_hangup)
        with self._socket(web_user) as listener:
            descriptor = listener.fileno()
            with _lockable_memory():
                self._start(broker_user, ["broker", "--listen-fd", str(descriptor)], (descriptor,))
        self._start(web_user, ["serve", "--web-only"], ())
        pid, status = os.wait()
        self._stop()
        return 0 if pid and os.waitstatus_to_exitcode(status) == 0 else 1

    def _directories(self, broker_user: pwd.struct_passwd, web_user: pwd.struct_passwd) -> None:
        _directory(self._settings.broker.private_directory, broker_user, 0o700)
        _directory(self._settings.broker.seal_key.parent, broker_user, 0o700)
        if self._settings.database.url.startswith("sqlite:///"):
            # setgid: what either of the two makes here belongs to the group that both are in
            _directory(Path(self._settings.database.url.removeprefix("sqlite:///")).parent, web_user, 0o2770)

    def _socket(self, web_user: pwd.struct_passwd) -> socket.socket:
        path = self._settings.broker.socket
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        listener = listen(path)
        os.chown(path, web_user.pw_uid, web_user.pw_gid)
        listener.listen(BACKLOG)
        return listener

    def _once(self, user: pwd.struct_passwd, *arguments: str) -> None:
        child = self._spawn(user, arguments, ())
        if child.wait() != 0:
            raise RequestRefused(
                "serve.database",
                f"'ci-bridge {' '.join(arguments)}' failed, so nothing was started.",
                "Mend what it says above, then start again.",
            )

    def _start(self, user: pwd.struct_passwd, arguments: Sequence[str], descriptors: Sequence[int]) -> None:
        self._children.append(self._spawn(user, arguments, descriptors))

    def _spawn(
        self, user: pwd.struct_passwd, arguments: Sequence[str], descriptors: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "bridge.cli.main", *arguments, "--config", str(self._config)],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
            pass_fds=tuple(descriptors),
            umask=0o007,
            cwd="/",
            stdin=subprocess.DEVNULL,
        )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        for child in self._children:
            child.terminate()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        """Have the broker, which was started first, read the policies again."""
        for broker in self._children[:1]:
            broker.send_signal(signal.SIGHUP)

    def _stop(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.terminate()
        for child in self._children:
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


@contextlib.contextmanager
def _lockable_memory() -> Iterator[None]:
    """Have a child that starts meanwhile inherit the right to lock all its memory, where we may give it."""
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        # A container's root may lack it; the broker then says so itself.
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def _account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise RequestRefused(
            "serve.no_user",
            f"There is no user {name} on this machine.",
            "Create it as a system user without a shell; docs/install.md has the commands.",
        ) from error


def _directory(path: Path, owner: pwd.struct_passwd, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, owner.pw_uid, owner.pw_gid)
    path.chmod(mode)
