"""Every command of ci-bridge and of the realm with its options, as the parsers have them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import typer.main

from bridge.cli.main import app
from realm.__main__ import _parser

GENERAL = {"--help", "--install-completion", "--show-completion"}
"""Options of every command, or of none in particular."""


def bridge_commands(command: object, path: str = "ci-bridge") -> Iterator[tuple[str, set[str]]]:
    """Each command with its options, hidden ones left out."""
    inner = getattr(command, "commands", None)
    if inner:
        for name, one in inner.items():
            yield from bridge_commands(one, f"{path} {name}")
        return
    yield (
        path,
        {
            option
            for parameter in command.params  # type: ignore[attr-defined]
            if not getattr(parameter, "hidden", False)
            for option in parameter.opts
            if option.startswith("--")
        }
        - GENERAL,
    )


def realm_commands() -> Iterator[tuple[str, set[str]]]:
    """Each command with its options."""
    verbs = next(one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction))
    for name, parser in verbs.choices.items():
        options = {text for action in parser._actions for text in action.option_strings if text.startswith("--")}
        yield f"python -m realm {name}", options - GENERAL


COMMANDS = [*bridge_commands(typer.main.get_command(app)), *realm_commands()]
