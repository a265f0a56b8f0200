"""How commands print: a table or lines for people, one JSON document with ``--json``; errors say what to do next."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import typer

from bridge.errors import BridgeError

P = ParamSpec("P")
R = TypeVar("R")

FAILED = 1
"""Exit code of a command that says no: a refused check, a broken log, settings that do not load."""


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")


def safe(text: object) -> str:
    """Return somebody else's text so that a terminal shows it, and does nothing else (T45)."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(text))


def explained(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command raise our errors, and the system's: two or three lines on standard error, and exit code 1."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except BridgeError as error:
            typer.secho(f"{error.title} [{error.code}]", fg=typer.colors.RED, err=True)
            typer.echo(f"What to do: {error.remedy}", err=True)
            if error.reference is not None:
                typer.echo(f"Reference: {error.reference}", err=True)
            raise typer.Exit(FAILED) from error
        except OSError as error:
            about = f" ({error.filename})" if error.filename else ""
            typer.secho(
                f"{error.strerror or type(error).__name__}{about} [system.error]", fg=typer.colors.RED, err=True
            )
            typer.echo("What to do: run it as the user, and on the machine, that the service runs as.", err=True)
            raise typer.Exit(FAILED) from error

    return run
