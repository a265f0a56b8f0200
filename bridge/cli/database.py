"""``ci-bridge db``: the database's version."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated

import typer

from bridge.cli.audit import AsJson
from bridge.cli.operator import operator
from bridge.cli.output import explained, print_json
from bridge.cli.service import Config
from bridge.settings import load

app = typer.Typer(help="The database.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The database."""


@app.command()
@explained
def upgrade(config: Config = None) -> None:
    """Bring the database to the version that this release needs; harmless when it is there already."""
    from bridge.db.engine import open_database
    from bridge.db.migrate import upgrade as migrate

    settings = load(config)
    _make_shared_file(settings.database.url)
    engine = open_database(settings.database.url)
    try:
        migrate(engine)
    finally:
        engine.dispose()


@app.command("adopt-register")
@explained
def adopt_register(
    reason: Annotated[str, typer.Option("--reason", help="For the record: who looked at what is sealed now.")],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Seal links, consents and kill switches as the database has them; as root, after a lost key or a clean-up."""
    from bridge.broker.client import BrokerClient

    settings = load(config)
    found, _ = BrokerClient(settings.broker.socket).ask_for("register_adopt", operator=operator(), reason=reason)
    if as_json:
        print_json(found)
        return
    kinds = ", ".join(f"{found[kind]} {kind}" for kind in ("links", "consents", "switches"))
    typer.echo(f"sealed as revision {found['revision']}: {kinds}")


def _make_shared_file(url: str) -> None:
    """Make a new SQLite file writable for the group that broker and web are in; SQLite itself would not."""
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return
    with suppress(FileExistsError):
        os.close(os.open(url.removeprefix(prefix), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660))
