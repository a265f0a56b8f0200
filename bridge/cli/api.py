"""``ci-bridge api``: what the HTTP API takes and answers, for whoever writes a program for it."""

from __future__ import annotations

import typer

from bridge.cli.output import explained, print_json

app = typer.Typer(help="The HTTP API.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep the command's own name where it is the only one."""


@app.command()
@explained
def openapi() -> None:
    """Print the OpenAPI document, as GET /v1/openapi.json answers it."""
    # Web's parts take long to import, and only this command needs them.
    from bridge.api.app import ROUTERS
    from bridge.api.openapi import document

    print_json(document(ROUTERS))
