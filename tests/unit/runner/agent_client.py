"""Starts the login agent as a real process under a uid of its own, and speaks frames with it."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from runner import wire

ROOT = Path(__file__).resolve().parents[3]
_INSTALLED = tempfile.TemporaryDirectory(prefix="ci-bridge-test-")
AGENT = Path(_INSTALLED.name) / "deploy/bin/ci-bridge-login"
"""A copy that every uid can reach: the checkout may lie in root's home."""

UID = 20001
USER = "ci-test"
ANSWER_SECONDS = 30.0

_IN_NAMESPACE = (
    'mount --make-rprivate / && mount --bind "$1" /etc/passwd && shift && '
    f"exec setpriv --reuid {UID} --regid {UID} --clear-groups --inh-caps=-all -- "
    'env -i PATH=/usr/bin:/bin LEAKED=canary KRB5CCNAME=FILE:/tmp/other "$@"'
)
"""Gives the uid an account that only the agent sees; the machine's own account data stays as it is."""


def _install() -> None:
    Path(_INSTALLED.name).chmod(0o755)
    for part in ("deploy/bin", "runner"):
        shutil.copytree(ROOT / part, Path(_INSTALLED.name) / part, ignore=shutil.ignore_patterns("__pycache__"))


_install()


class Failed(Exception):
    """The agent answered with an error."""

    def __init__(self, header: dict[str, Any]) -> None:
        super().__init__(str(header))
        self.code = str(header["code"])
        self.detail = str(header.get("detail", ""))


class AgentClient:
    """One login agent and a connection to it."""

    def __init__(self, home: Path, config: Path | None = None) -> None:
        passwd = home / "passwd"
        passwd.write_text(f"root:x:0:0:root:/root:/bin/bash\n{USER}:x:{UID}:{UID}::{home}:/bin/bash\n")
        command = [str(AGENT), *(["--config", str(config)] if config else [])]
        self.process = subprocess.Popen(
            ["unshare", "--mount", "/bin/sh", "-c", _IN_NAMESPACE, "sh", str(passwd), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._numbers = 0
        self._queues: dict[int, queue.Queue[tuple[dict[str, Any], bytes] | None]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, verb: str, data: bytes = b"", **fields: Any) -> int:
        """Send a request; returns its id."""
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._queues[number] = queue.Queue()
            assert self.process.stdin is not None
            self.process.stdin.write(wire.encode({"id": number, "verb": verb, **fields}, data))
            self.process.stdin.flush()
        return number

    def next(self, number: int) -> tuple[dict[str, Any], bytes]:
        """Give the next event of a request."""
        frame = self._queues[number].get(timeout=ANSWER_SECONDS)
        assert frame is not None, f"the agent ended: {self.last_words()}"
        return frame

    def last_words(self) -> str:
        """Give the exit code and standard error of an agent that has ended."""
        code = self.process.wait(ANSWER_SECONDS)
        assert self.process.stderr is not None
        return f"{code} {self.process.stderr.read().decode()}"

    def finish(self, number: int) -> tuple[dict[str, Any], bytes]:
        """Take a request's events until its end; returns the last header and all output; raises Failed."""
        output = bytearray()
        while True:
            header, data = self.next(number)
            if header["event"] == "error":
                raise Failed(header)
            if header["event"] == "done":
                return header, bytes(output)
            output += data

    def ask(self, verb: str, data: bytes = b"", **fields: Any) -> dict[str, Any]:
        """Send a request and give its answer; raises Failed."""
        return self.finish(self.start(verb, data, **fields))[0]

    def close(self) -> int:
        """End the agent's input and wait for its end; returns its exit code."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            return self.process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._reader.join(ANSWER_SECONDS)
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while (frame := wire.read_frame(self.process.stdout)) is not None:
                self._queues[frame[0]["id"]].put(frame)
        except (wire.BrokenFrame, ValueError):
            pass
        finally:
            for answers in self._queues.values():
                answers.put(None)


def own(path: Path, uid: int = UID) -> Path:
    """Give a path to the agent's uid."""
    os.chown(path, uid, uid, follow_symlinks=False)
    return path
