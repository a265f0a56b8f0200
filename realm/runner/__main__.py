"""Starts the driver: `python -m realm.runner --config config.toml run [--once] [--jobs N]`."""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import httpx2

from realm.runner.config import Config, ConfigError, load_config
from realm.runner.coordinator import Coordinator
from realm.runner.pace import pace_from
from realm.runner.parent import end_with_parent
from realm.runner.service import Service


def main() -> int:
    """Serve or verify; returns the exit code."""
    options = _parser().parse_args()
    if options.end_with_parent:
        end_with_parent()
    level = logging.DEBUG if options.debug else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        config = load_config(options.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if options.command == "verify":
        return _verify(config)
    _serve(Service(config, pace_from(os.environ), options.jobs), once=options.once)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m realm.runner", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("/etc/gitlab-runner/config.toml"), help="config.toml")
    parser.add_argument("--debug", action="store_true", help="also log what cleanup_exec prints")
    parser.add_argument("--end-with-parent", action="store_true", help="stop when the starting process ends")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="serve jobs until SIGTERM (ends jobs) or SIGQUIT (lets them finish)")
    run.add_argument("--once", action="store_true", help="end when no job is left")
    run.add_argument("--jobs", type=int, default=None, help="jobs side by side; default is the file's `concurrent`")
    commands.add_parser("verify", help="check the runner tokens with the server")
    return parser


def _serve(service: Service, *, once: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop(graceful=False))
    signal.signal(signal.SIGQUIT, lambda *_: service.stop(graceful=True))
    # The loop runs beside the main thread, so that signal handlers never interrupt a lock that they need themselves.
    loop = threading.Thread(target=service.serve, kwargs={"once": once}, name="loop")
    loop.start()
    while loop.is_alive():
        loop.join(timeout=1)


def _verify(config: Config) -> int:
    bad = 0
    for runner in config.runners:
        coordinator = Coordinator(runner)
        try:
            known = coordinator.verify()
        except httpx2.HTTPError as error:
            known = False
            sys.stderr.write(f"{runner.url}: {type(error).__name__}: {error}\n")
        finally:
            coordinator.close()
        sys.stderr.write(f"Verifying runner... {'is valid' if known else 'is not valid'} runner={runner.short_token}\n")
        bad += not known
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
