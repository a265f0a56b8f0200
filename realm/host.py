"""A host of a running realm: run commands on it, read and write its files, open sockets in its network."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from realm import kernel
from realm.errors import RealmError
from realm.listeners import Listener, listeners
from realm.topology import HostSpec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_LINKS = 40  # as the kernel's MAXSYMLINKS

File = int | IO[Any] | None


@dataclass
class Host:
    """One host. `anchor` is the machine's pid of the host's PID 1; it changes when the host is rebooted."""

    spec: HostSpec
    anchor: int

    @property
    def name(self) -> str:
        """Short name, such as "login"."""
        return self.spec.name

    @property
    def fqdn(self) -> str:
        """Full name, such as "login.realm.test"."""
        return self.spec.fqdn

    @property
    def address(self) -> str:
        """IPv4 address, such as "10.113.0.14"."""
        return self.spec.address

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        check: bool = True,
        timeout: float = 60,
        input: bytes = b"",  # noqa: A002 - the name that subprocess.run has for it
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `argv` as `user` (default root) with a clean environment plus `env`, and return code, stdout and stderr.

        Raises RealmError `realm.command_failed` when `check` and the code is not 0, `realm.command_timeout` after
        `timeout` seconds, when the command and all of its process group are killed.
        """
        pipe = subprocess.PIPE
        process = self.popen(argv, user=user, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired as error:
            kill_session(process)
            out, err = process.communicate()
            raise self._failed("realm.command_timeout", argv, f"gave no answer in {timeout:g} s", out + err) from error
        if check and process.returncode:
            raise self._failed("realm.command_failed", argv, f"ended with {process.returncode}", out + err)
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def popen(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        own_session: bool = True,
        stdin: File = subprocess.DEVNULL,
        stdout: File = None,
        stderr: File = None,
    ) -> subprocess.Popen[bytes]:
        """Start `argv` and return the process that waits for it, which ends as it ends.

        Use `kill_session` to end it: a signal to the returned process does not reach the command.
        """
        command, environment = self.command(argv, user=user, env=env, cwd=cwd, own_session=own_session)
        # A session of its own keeps a terminal's signals away from it, and lets `kill_session` reach all of it.
        return subprocess.Popen(
            command, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=own_session
        )

    def command(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        own_session: bool = True,
    ) -> tuple[list[str], dict[str, str]]:
        """What to execute on the machine, and with which whole environment, so that `argv` runs on this host."""
        entry = self._passwd(user or "root")
        where = cwd or (entry[5] if user else "/")
        enter = ["/usr/bin/nsenter", "-t", str(self.anchor), "-m", "-u", "-i", "-n", "-p", f"--wdns={where}", "--"]
        session = ["/usr/bin/setsid"] if own_session else []
        # Given by number as well, because --init-groups needs the name and a numeric gid keeps NSS out of it.
        become = [
            "/usr/bin/setpriv",
            f"--reuid={entry[0]}",
            f"--regid={entry[3]}",
            "--init-groups",
            "--inh-caps=-all",
        ]
        base = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": entry[5], "USER": entry[0], "LOGNAME": entry[0]}
        base["SHELL"] = entry[6] or "/bin/sh"
        return [*enter, *session, *(become if user and user != "root" else []), *argv], {**base, **(env or {})}

    def path(self, path: str) -> Path:
        """Where the machine sees the absolute `path` of this host, its symbolic links followed as the host would."""
        return Path(f"/proc/{self.anchor}/root{self._resolve(path)}")

    def read(self, path: str) -> bytes:
        """The content of a file. Raises OSError."""
        return self.path(path).read_bytes()

    def write(self, path: str, content: bytes | str, *, mode: int = 0o644, owner: str = "root") -> None:
        """Replace a file atomically, in directories made as needed. Raises OSError, KeyError (no such owner)."""
        target = self.path(path)
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        entry = self._passwd(owner)
        draft = target.with_name(f".{target.name}.draft")
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            os.fchown(fd, int(entry[2]), int(entry[3]))
            os.fchmod(fd, mode)
        draft.replace(target)

    def mkdir(self, path: str, *, mode: int = 0o755, owner: str = "root") -> None:
        """Make a directory, if it is missing, and give it that mode and owner. Raises OSError."""
        target = self.path(path)
        target.mkdir(mode=0o755, parents=True, exist_ok=True)
        entry = self._passwd(owner)
        os.chown(target, int(entry[2]), int(entry[3]))
        target.chmod(mode)

    @contextmanager
    def network(self) -> Iterator[None]:
        """Let the *calling thread* open sockets in this host's network; other threads and names are not affected."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            inside = os.open(f"/proc/{self.anchor}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                kernel.setns(inside, kernel.CLONE_NEWNET)
            finally:
                os.close(inside)
            try:
                yield
            finally:
                kernel.setns(before, kernel.CLONE_NEWNET)
        finally:
            os.close(before)

    def connect(self, port: int, *, timeout: float) -> socket.socket:
        """A TCP connection from this host to its own address. Raises OSError."""
        with self.network():
            return socket.create_connection((self.address, port), timeout)

    def listeners(self, protocol: str = "tcp", port: int | None = None) -> list[Listener]:
        """The sockets that wait for clients on this host."""
        return [found for found in listeners(self.anchor, protocol) if port in (None, found.port)]

    def _failed(self, code: str, argv: Sequence[str], what: str, output: bytes) -> RealmError:
        remedy = f"Read what it said, then try it by hand: python -m realm exec {self.name} -- {argv[0]} ..."
        tail = output[-2000:].decode("utf-8", "replace").strip()
        return RealmError(code, f"{argv[0]} on {self.name} {what}.", remedy=remedy, evidence=tail)

    def _passwd(self, user: str) -> list[str]:
        if user == "root":
            return ["root", "x", "0", "0", "root", "/root", "/bin/bash"]
        for line in self.path("/etc/passwd").read_text("utf-8").splitlines():
            if line.startswith(f"{user}:"):
                return line.split(":")
        raise KeyError(f"{self.name} has no user {user}")

    def _resolve(self, path: str) -> str:
        """Follow symbolic links below the host's root; the kernel would follow absolute ones on the machine instead."""
        base, done, todo, links = f"/proc/{self.anchor}/root", "", path.strip("/").split("/"), 0
        while todo:
            part = todo.pop(0)
            candidate = os.path.normpath(f"/{done}/{part}") if part else f"/{done}"
            link = Path(base + candidate)
            if link.is_symlink():
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(f"too many links in {path}")
                value = str(link.readlink())
                todo = value.strip("/").split("/") + todo
                done = "" if value.startswith("/") else done
            else:
                done = candidate.strip("/")
        return f"/{done}"


def kill_session(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    """Signal the command that `process` (from `Host.popen`) waits for, together with its process group."""
    groups = set()
    try:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split():
            groups.add(os.getpgid(int(child)))
    except (FileNotFoundError, ProcessLookupError):
        return
    # Not there yet: the command has not been forked off, so nsenter is all there is.
    for group in groups or {os.getpgid(process.pid)}:
        with suppress(ProcessLookupError):
            os.killpg(group, how)
    wake(process)


def wake(process: subprocess.Popen[bytes]) -> None:
    """Have the process that waits for a command look at it again.

    nsenter stops itself together with a command that is stopped (nsenter.c, continue_as_child), and does not notice by
    itself that this goes on, or ends: then nobody takes note of the end, and the host's PID 1 can't end either.
    """
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
