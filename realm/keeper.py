"""The background process that holds a realm for `python -m realm up` until it is told to end."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from realm.cluster import Realm
from realm.errors import RealmError

_LOOK_SECONDS = 1.0


def main() -> int:
    """Bring up the realm named by the first argument with the parts that follow, report on stdout, and keep it.

    One JSON line is written: {"seconds": ...}, or the code, detail, remedy and evidence of the failure.
    """
    # Handlers, not a blocked mask: every service would inherit that, and could not be stopped.
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: told.set())
    realm = Realm(sys.argv[1], parts=sys.argv[2:], kept=True)
    began = time.monotonic()
    try:
        realm.up()
    except RealmError as error:
        _report({"code": error.code, "detail": error.detail, "remedy": error.remedy, "evidence": error.evidence})
        return 1
    try:
        _report({"seconds": round(time.monotonic() - began, 2)})
        _let_go(realm.directory / "keeper.log")
        while realm.is_up and not told.wait(_LOOK_SECONDS):
            pass
        return 0 if realm.is_up else 1
    finally:
        realm.down()


def _report(answer: dict[str, object]) -> None:
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        return  # Whoever started us has gone; the realm is still wanted.


def _let_go(log: Path) -> None:
    """Leave the terminal, or whoever waits for the end of our output would wait as long as the realm lives."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
