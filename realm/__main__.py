"""The command `python -m realm`: up, down, status, exec and logs of a pocket realm."""

from __future__ import annotations

import argparse
import json
import sys

from realm import commands
from realm.errors import RealmError
from realm.topology import PARTS


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors go to stderr with what to do next, and end with 1 (2 for wrong usage)."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except RealmError as error:
        if getattr(options, "json", False):
            print(
                json.dumps({"code": error.code, "detail": error.detail, "remedy": error.remedy, "log": error.evidence})
            )
        else:
            print(f"realm: {error.detail} [{error.code}]", file=sys.stderr)
            if error.evidence:
                print(error.evidence, file=sys.stderr)
            print(f"next: {error.remedy}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m realm", description="A whole cluster on one machine.")
    verbs = parser.add_subparsers(required=True, metavar="up|down|status|exec|logs")
    up = _verb(verbs, "up", commands.up, "start a realm in the background")
    up.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which parts (default: all)")
    _verb(verbs, "down", commands.down, "end a realm; nothing of it stays")
    _verb(verbs, "status", commands.status, "show hosts, services, addresses and listeners")
    run = _verb(verbs, "exec", commands.execute, "run a command on a host")
    run.add_argument("--user", help="as whom (default: root)")
    run.add_argument("host")
    run.add_argument("command", nargs="+", help="after --, the command and its arguments")
    logs = _verb(verbs, "logs", commands.logs, "print the log of a service, or of all services of a host")
    logs.add_argument("host")
    logs.add_argument("service", nargs="?")
    return parser


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: object, text: str
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text)
    verb.add_argument("--name", default="default", help="which realm (default: %(default)s)")
    verb.add_argument("--json", action="store_true", help="answer in JSON")
    verb.set_defaults(run=run)
    return verb


if __name__ == "__main__":
    sys.exit(main())
