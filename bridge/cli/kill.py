"""``ci-bridge kill``: stop a person, account, project, runner, GitLab or everything, now; and let it go on again."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from bridge.audit import kills
from bridge.cli.audit import AsJson
from bridge.cli.ledger import open_ledger
from bridge.cli.operator import operator
from bridge.cli.output import explained, print_json
from bridge.cli.service import Config
from bridge.errors import RequestRefused
from bridge.model import KillScope, KillSwitch
from bridge.references import new_reference
from bridge.settings import Settings, load

app = typer.Typer(help="Kill switches: stop jobs at once, and let them go on again.", no_args_is_help=True)

MAX_REASON = 500

Reason = Annotated[str, typer.Option("--reason", help="For the record; the people it stops never see it.")]
Issuer = Annotated[str | None, typer.Option("--issuer", help="GitLab's URL; needed where there are several.")]
Number = Annotated[int, typer.Argument(min=1, help="GitLab's id of it.")]


@app.command()
@explained
def user(number: Number, reason: Reason, issuer: Issuer = None, as_json: AsJson = False, config: Config = None) -> None:
    """Stop the jobs of one GitLab user."""
    settings = load(config)
    _throw(settings, KillScope.USER, reason, as_json, issuer=_issuer(settings, issuer), number=number)


@app.command()
@explained
def account(
    name: Annotated[str, typer.Argument(help="The posix account.")],
    reason: Reason,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Stop the jobs that run as one posix account, whoever starts them."""
    _throw(load(config), KillScope.ACCOUNT, reason, as_json, account=name)


@app.command()
@explained
def project(
    number: Number, reason: Reason, issuer: Issuer = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Stop the jobs of one GitLab project, those of its pipelines in other projects too."""
    settings = load(config)
    _throw(settings, KillScope.PROJECT, reason, as_json, issuer=_issuer(settings, issuer), number=number)


@app.command()
@explained
def runner(
    number: Number, reason: Reason, issuer: Issuer = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Stop the jobs that come from one GitLab Runner."""
    settings = load(config)
    _throw(settings, KillScope.RUNNER, reason, as_json, issuer=_issuer(settings, issuer), number=number)


@app.command()
@explained
def issuer(
    url: Annotated[str, typer.Argument(help="GitLab's URL, as in the settings.")],
    reason: Reason,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Stop the jobs of one GitLab."""
    settings = load(config)
    _throw(settings, KillScope.ISSUER, reason, as_json, issuer=_issuer(settings, url))


@app.command("all")
@explained
def everything(reason: Reason, as_json: AsJson = False, config: Config = None) -> None:
    """Stop all jobs."""
    _throw(load(config), KillScope.ALL, reason, as_json)


@app.command("list")
@explained
def show(
    every: Annotated[bool, typer.Option("--lifted", help="Those that were lifted too.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the kill switches that are in force."""
    with open_ledger(load(config), "ci-bridge kill").read() as view:
        switches = view.kill_switches(active=not every)
    if as_json:
        print_json([asdict(switch) for switch in switches])
        return
    for switch in switches:
        lifted = f" lifted {switch.lifted_at:%Y-%m-%d %H:%M} by {switch.lifted_by}" if switch.lifted_at else ""
        since = f"{switch.created_at:%Y-%m-%d %H:%M}"
        typer.echo(f"{switch.switch_id}  {since}  {_what(switch)}  by {switch.actor}: {switch.reason!r}{lifted}")
    if not switches:
        typer.echo("No kill switch is in force.")


@app.command()
@explained
def lift(
    switch_id: Annotated[str, typer.Argument(metavar="ID", help="As 'ci-bridge kill list' shows it.")],
    reason: Reason,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Lift a kill switch: what it stopped can be started again; what it ended stays ended."""
    ledger = open_ledger(load(config), "ci-bridge kill")
    lifted = kills.lift(ledger, switch_id, operator(), _checked(reason))
    if as_json:
        print_json(asdict(lifted))
        return
    typer.echo(f"lifted: {_what(lifted)} [{lifted.switch_id}]")


def _throw(
    settings: Settings,
    scope: KillScope,
    reason: str,
    as_json: bool,
    *,
    issuer: str | None = None,
    number: int | None = None,
    account: str | None = None,
) -> None:
    ledger = open_ledger(settings, "ci-bridge kill")
    wanted = KillSwitch(
        new_reference(), scope, issuer, number, account, _checked(reason), operator(), datetime.now(UTC)
    )
    switch = kills.throw(ledger, wanted)
    with ledger.read() as view:
        running = sum(kills.stops(switch, run.grant) for run in view.live_runs())
    if as_json:
        print_json(asdict(switch) | {"new": switch is wanted, "live_runs": running})
        return
    already = "" if switch is wanted else " already"
    typer.echo(f"stopped{already}: {_what(switch)} [{switch.switch_id}]; live runs that web ends now: {running}")


def _issuer(settings: Settings, url: str | None) -> str:
    """Return the GitLab that is meant; a misspelt one would stop nobody."""
    known = [issuer.url for issuer in settings.issuers]
    if url is None and len(known) == 1:
        return known[0]
    if url not in known:
        raise RequestRefused(
            "kill.issuer",
            "No GitLab of the settings is meant by that." if url else "There are several GitLabs in the settings.",
            f"Name one of {', '.join(known)}.",
        )
    return url


def _checked(reason: str) -> str:
    if not reason.strip() or len(reason) > MAX_REASON:
        raise RequestRefused(
            "kill.reason", "A kill switch needs a reason.", f"Say in 1 to {MAX_REASON} characters why, with --reason."
        )
    return reason.strip()


def _what(switch: KillSwitch) -> str:
    parts = (switch.account, switch.number, f"of {switch.issuer}" if switch.number else switch.issuer)
    return " ".join([switch.scope.value, *(str(part) for part in parts if part)])
