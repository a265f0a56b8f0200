"""Runs Slurm's commands: absolute names from a fixed path, a clean environment, no shell, bounded time."""

from __future__ import annotations

import os
import subprocess

from runner.login.failures import VerbFailed
from runner.login.user import User

DEFAULT_DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin")
TIMEOUT_SECONDS = 30.0
MAX_DETAIL_CHARACTERS = 4096

NOT_YET = "the DB index is being set"
"""ESLURM_JOB_SETTING_DB_INX (slurm_errno.c): a held job can't be released in this moment, but in the next."""

_UNAVAILABLE = (
    NOT_YET,
    "Unable to contact slurm controller",
    "Unable to establish connection",
    "Unable to establish configuration source",
    "Connection refused",
    "Connection timed out",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Transport endpoint is not connected",
    "Slurm backup controller in standby mode",
    "Slurm accounting storage is disabled",
    "Problem talking to the database",
    "Unable to contact database",
    "DBD_",
    "Munge encode failed",
    "Munge decode failed",
    "Protocol authentication error",
    "Resource temporarily unavailable",
    "Invalid authentication credential",
)
"""Parts of what 22.05's commands say when Slurm itself, and not the request, is the trouble."""


class Tools:
    """Slurm's commands on this machine."""

    def __init__(self, user: User, directories: tuple[str, ...] = DEFAULT_DIRECTORIES) -> None:
        self._directories = directories
        self._environment = user.environment()

    def run(self, name: str, arguments: list[str]) -> str:
        """Run a command and return its standard output; raises VerbFailed (``slurm.*``, with stderr as detail)."""
        try:
            done = subprocess.run(
                [self._find(name), *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_SECONDS,
                env=self._environment,
                cwd="/",
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _unavailable(f"{name} gave no answer in {TIMEOUT_SECONDS:.0f} s") from error
        except (OSError, ValueError) as error:
            raise VerbFailed("slurm.not_started", f"{name} can't be started.", "See the detail.", str(error)) from error
        said = done.stderr.decode(errors="replace").strip()[:MAX_DETAIL_CHARACTERS]
        if done.returncode != 0:
            if any(sign in said for sign in _UNAVAILABLE):
                raise _unavailable(said)
            raise VerbFailed("slurm.refused", f"{name} refused.", "See what Slurm says.", said)
        return done.stdout.decode(errors="replace")

    def _find(self, name: str) -> str:
        for directory in self._directories:
            path = f"{directory}/{name}"
            if os.access(path, os.X_OK):
                return path
        raise VerbFailed(
            "slurm.not_installed", f"There is no {name} on the login node.", "Install Slurm's client commands."
        )


def _unavailable(detail: str) -> VerbFailed:
    return VerbFailed("slurm.unavailable", "Slurm does not answer.", "Try again later.", detail)
