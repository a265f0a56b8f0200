"""A PostgreSQL of its own for the tests, where Debian's package is installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
USER = "postgres"


def available() -> bool:
    """Whether PostgreSQL can be started here: installed, and we may become its user."""
    return bool(BINARIES) and os.geteuid() == 0 and any(entry.pw_name == USER for entry in pwd.getpwall())


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a fresh server on a socket of its own; gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="pg-"))
    owner = pwd.getpwnam(USER)
    os.chown(directory, owner.pw_uid, owner.pw_gid)

    def run(program: str, *arguments: str) -> None:
        command = [str(BINARIES[-1] / program), "-D", str(directory / "data"), *arguments]
        subprocess.run(
            command, user=USER, group=owner.pw_gid, extra_groups=[], cwd=directory, check=True, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    options = f"-k {directory} -c listen_addresses= -c fsync=off -c max_connections=60"
    try:
        run("initdb", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        run("pg_ctl", "-o", options, "-l", str(directory / "log"), "-w", "start")
        try:
            yield f"postgresql+psycopg://{USER}@/postgres?host={directory}"
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
