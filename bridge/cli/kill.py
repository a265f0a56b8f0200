"""``ci-bridge kill``: stop a person, account, project, runner, GitLab or everything, now; and let it go on again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.remote import Server
from bridge.cli.service import Config
from bridge.cli.switches import Here, Switches, Target, There
from bridge.model import KillScope, KillSwitch
from bridge.settings import is_bridge_host, load, load_client

app = typer.Typer(help="Kill switches: stop jobs at once, and let them go on again.", no_args_is_help=True)


Reason = Annotated[str, typer.Option("--reason", help="For the record; the people it stops never see it.")]
Issuer = Annotated[str | None, typer.Option("--issuer", help="GitLab's URL; needed where there are several.")]
Number = Annotated[int, typer.Argument(min=1, help="GitLab's id of it.")]


@app.command()
@explained
def user(
    number: Number,
    reason: Reason,
    issuer: Issuer = None,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Stop the jobs of one GitLab user."""
    place = _place(server, config)
    _throw(place, Target(KillScope.USER, issuer=place.issuer(issuer), number=number), reason, as_json)


@app.command()
@explained
def account(
    name: Annotated[str, typer.Argument(help="The posix account.")],
    reason: Reason,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Stop the jobs that run as one posix account, whoever starts them."""
    _throw(_place(server, config), Target(KillScope.ACCOUNT, account=name), reason, as_json)


@app.command()
@explained
def project(
    number: Number,
    reason: Reason,
    issuer: Issuer = None,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Stop the jobs of one GitLab project, those of its pipelines in other projects too."""
    place = _place(server, config)
    _throw(place, Target(KillScope.PROJECT, issuer=place.issuer(issuer), number=number), reason, as_json)


@app.command()
@explained
def runner(
    number: Number,
    reason: Reason,
    issuer: Issuer = None,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Stop the jobs that come from one GitLab Runner."""
    place = _place(server, config)
    _throw(place, Target(KillScope.RUNNER, issuer=place.issuer(issuer), number=number), reason, as_json)


@app.command()
@explained
def issuer(
    url: Annotated[str, typer.Argument(help="GitLab's URL, as in the settings.")],
    reason: Reason,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Stop the jobs of one GitLab."""
    place = _place(server, config)
    _throw(place, Target(KillScope.ISSUER, issuer=place.issuer(url)), reason, as_json)


@app.command("all")
@explained
def everything(reason: Reason, as_json: AsJson = False, server: Server = None, config: Config = None) -> None:
    """Stop all jobs."""
    _throw(_place(server, config), Target(KillScope.ALL), reason, as_json)


@app.command("list")
@explained
def show(
    every: Annotated[bool, typer.Option("--lifted", help="Those that were lifted too.")] = False,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Show the kill switches that are in force."""
    switches = _place(server, config).show(every=every)
    if as_json:
        print_json([asdict(switch) for switch in switches])
        return
    for switch in switches:
        lifted = ""
        if switch.lifted_at is not None:
            lifted = f" lifted {switch.lifted_at:%Y-%m-%d %H:%M} by {safe(switch.lifted_by)}"
        since = f"{switch.created_at:%Y-%m-%d %H:%M}"
        what = f"{_what(switch)}  by {safe(switch.actor)}: {switch.reason!r}{lifted}"
        typer.echo(f"{safe(switch.switch_id)}  {since}  {what}")
    if not switches:
        typer.echo("No kill switch is in force.")


@app.command()
@explained
def lift(
    switch_id: Annotated[str, typer.Argument(metavar="ID", help="As 'ci-bridge kill list' shows it.")],
    reason: Reason,
    as_json: AsJson = False,
    server: Server = None,
    config: Config = None,
) -> None:
    """Lift a kill switch: what it stopped can be started again; what it ended stays ended."""
    lifted = _place(server, config).lift(switch_id, reason)
    if as_json:
        print_json(asdict(lifted))
        return
    typer.echo(f"lifted: {_what(lifted)} [{safe(lifted.switch_id)}]")


def _place(server: str | None, config: Config) -> Switches:
    """This machine's bridge, unless another one is named, or this machine has none."""
    if server is None and is_bridge_host(config):
        return Here(load(config))
    return There(load_client(server))


def _throw(place: Switches, target: Target, reason: str, as_json: bool) -> None:
    thrown = place.throw(target, reason)
    switch = thrown.switch
    if as_json:
        print_json(asdict(switch) | {"new": thrown.new, "live_runs": thrown.live_runs})
        return
    already = "" if thrown.new else " already"
    ended = "" if thrown.live_runs is None else f"; live runs that web ends now: {thrown.live_runs}"
    typer.echo(f"stopped{already}: {_what(switch)} [{safe(switch.switch_id)}]{ended}")


def _what(switch: KillSwitch) -> str:
    parts = (switch.account, switch.number, f"of {switch.issuer}" if switch.number else switch.issuer)
    return safe(" ".join([switch.scope.value, *(str(part) for part in parts if part)]))
