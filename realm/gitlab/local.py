"""The stand-in as a child process on loopback with a throw-away certificate, for tests without a realm."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from realm.gitlab.certificates import ServerFiles, make_server_files
from realm.gitlab.client import GitLabControl

STOP_SECONDS = 10


class LocalGitLab:
    """`with LocalGitLab() as gitlab:` gives a running instance; everything of it is gone afterwards.

    Attributes:
        url: its address, which is also the issuer of its id_tokens.
        files: the certificate files; clients trust `files.ca`.
        control: the control client.
    """

    url: str
    files: ServerFiles
    control: GitLabControl

    def __init__(self, *, trace_update_seconds: int = 3) -> None:
        self._trace_update_seconds = trace_update_seconds
        self._folder = tempfile.TemporaryDirectory(prefix="realm-gitlab-")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        folder = Path(self._folder.name)
        self.files = make_server_files(folder, ["localhost", "127.0.0.1"])
        self._process = subprocess.Popen(self._command(folder), stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            self._stop()
            raise RuntimeError("the GitLab stand-in ended before it was ready; its reason is on stderr")
        self.url = json.loads(line)["external_url"]
        self.control = GitLabControl(folder / "control.sock")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.control.close()
        self._stop()

    def _command(self, folder: Path) -> list[str]:
        return [
            sys.executable,
            "-m",
            "realm.gitlab",
            "--end-with-parent",
            "--port=0",
            f"--cert={self.files.cert}",
            f"--key={self.files.key}",
            "--external-url=https://localhost:{port}",
            f"--repos={folder / 'repos'}",
            f"--control={folder / 'control.sock'}",
            f"--trace-update-seconds={self._trace_update_seconds}",
        ]

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
        self._folder.cleanup()
