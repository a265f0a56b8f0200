"""``ci-bridge policy activate, roll-back, break-glass, history, replay``: what is in force, was, and would be."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.cli import review
from bridge.cli.audit import AsJson
from bridge.cli.output import FAILED, explained, print_json, safe
from bridge.cli.paging import Limit, items
from bridge.cli.proposals import Directory, Hash, ProposalId, Reason, Yes
from bridge.cli.remote import Remote, Server, connect, id_in_path
from bridge.cli.review import ADMIN
from bridge.cli.run import age
from bridge.errors import BridgeError, NotFound
from bridge.people.policy_reading import Affected
from bridge.proposals import EMERGENCY_LIFE, Activation, ActivationKind
from bridge.settings import load_client

app = typer.Typer()

PATH = f"{ADMIN}/activations"

MAX_MINUTES = int(EMERGENCY_LIFE.total_seconds()) // 60
_DAY = timedelta(days=1)

Bundle = Annotated[str, typer.Argument(metavar="HASH", help="As 'ci-bridge policy history' shows it.")]
Cancel = Annotated[
    bool, typer.Option("--cancel-revoked", help="End the live runs that the bundle would refuse; role operator.")
]


@app.command()
@explained
def activate(
    proposal_id: ProposalId, reason: Reason, cancel: Cancel = False, server: Server = None, as_json: AsJson = False
) -> None:
    """Put an approved proposal in force, at once; runs in flight go on, and those that it would refuse are listed."""
    bridge = connect(load_client(server))
    before, _ = review.read_proposal(bridge, id_in_path(proposal_id))
    path = f"{ADMIN}/proposals/{proposal_id}/activate"
    answer = bridge.change("POST", path, {"reason": reason}, version=before.version)
    _in_force(bridge, answer, cancel=cancel, as_json=as_json)


@app.command("roll-back")
@explained
def roll_back(
    bundle: Bundle, reason: Reason, cancel: Cancel = False, server: Server = None, as_json: AsJson = False
) -> None:
    """Put a bundle in force again that was approved and in force before."""
    bridge = connect(load_client(server))
    answer = bridge.create(f"{PATH}/roll-back", {"content_hash": bundle, "reason": reason})
    _in_force(bridge, answer, cancel=cancel, as_json=as_json)


@app.command("break-glass")
@explained
def break_glass(
    reason: Reason,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=MAX_MINUTES, help="For how long.")],
    directory: Annotated[Path | None, typer.Argument(help="A policy directory; or name a bundle with --hash.")] = None,
    bundle: Annotated[str | None, typer.Option("--hash", metavar="HASH", help="A bundle that the bridge has.")] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Ask for a bundle without approval, for some hours at most: another operator confirms it. Loud."""
    if (directory is None) is (bundle is None):
        raise typer.BadParameter("name a directory, or a bundle with --hash")
    body: dict[str, Any] = {"minutes": minutes, "reason": reason}
    if directory is not None:
        body["files"] = dict(review.directory_files(directory))
    else:
        body["content_hash"] = bundle
    bridge = connect(load_client(server))
    asked = _activation(bridge, bridge.create(f"{PATH}/break-glass", body))
    if as_json:
        print_json(asdict(asked))
        return
    typer.echo(f"asked for: {_what(asked)}")
    typer.echo(f"Next, another operator: ci-bridge policy confirm {asked.number}")


@app.command()
@explained
def confirm(
    number: Annotated[int, typer.Argument(min=1, help="Of the emergency, as 'ci-bridge policy history' shows it.")],
    read: Hash = None,
    yes: Yes = False,
    cancel: Cancel = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what another operator's emergency changes, and put exactly that content in force."""
    bridge = connect(load_client(server))
    asked = next((one for one in _history(bridge, None) if one.number == number), None)
    if asked is None or asked.kind is not ActivationKind.BREAK_GLASS:
        raise NotFound(
            "policy.nothing_to_confirm", "There is no such emergency.", "See 'ci-bridge policy history' for its number."
        )
    found = review.reviewed(bridge, review.read_bundle(bridge, asked.content_hash))
    for line in (_what(asked), *found.lines()):
        typer.echo(line, err=True)
    review.require_shown(found.content_hash, read, yes=yes, question=f"Put {found.content_hash[:12]} in force?")
    answer = bridge.post(f"{PATH}/{number}/confirm", {"content_hash": found.content_hash})
    _in_force(bridge, answer, cancel=cancel, as_json=as_json)


@app.command()
@explained
def history(limit: Limit = 50, server: Server = None, as_json: AsJson = False) -> None:
    """List what was in force when, by whom and why, newest first."""
    bridge = connect(load_client(server))
    in_force = bridge.read(int, bridge.get(f"{PATH}?limit=1").get("in_force"))
    found = _history(bridge, limit)
    if as_json:
        print_json({"in_force": in_force, "activations": [asdict(one) for one in found]})
        return
    for one in found:
        typer.echo(f"{'*' if one.number == in_force else ' '} {_what(one)}")
    if not found:
        typer.echo("The policies of the bridge's settings are in force; nothing was activated yet.")


@app.command()
@explained
def active(
    to: Annotated[Path | None, typer.Option("--to", help="Write its files into this new directory.")] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show which bundle is in force, and write its files into a directory."""
    standing, files = review.read_active(connect(load_client(server)))
    if to is not None:
        review.write_files(to, files)
    if as_json:
        print_json(asdict(standing) | {"files": sorted(files)})
        return
    typer.echo(f"bundle {safe(standing.content_hash)}, activation {standing.number}")
    if standing.emergency_until is not None:
        until = f"{standing.emergency_until:%Y-%m-%d %H:%M} UTC"
        typer.echo(f"emergency until {until}; then bundle {safe(standing.base_hash)} is back")


@app.command()
@explained
def replay(
    directory: Directory,
    since: Annotated[str, typer.Option("--since", help="How far back: 12h, 30d.")] = "30d",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say which jobs of the last days a policy directory would refuse, or give something else; exit code 1 for some."""
    days = math.ceil(age(since) / _DAY)
    files = review.directory_files(directory)
    bridge = connect(load_client(server))
    answer = bridge.post(f"{ADMIN}/bundles/replay", {"files": dict(files), "days": days})
    turns = bridge.read(list[dict[str, Any]], answer.get("turns"))
    if as_json:
        print_json(answer)
    else:
        for turn in turns:
            differences = "; ".join(map(str, turn.get("differences") or ()))
            typer.echo(
                f"{safe(turn.get('reference'))}  user {safe(turn.get('user_id'))} as {safe(turn.get('account'))}  "
                f"{safe(turn.get('before'))} -> {safe(turn.get('after'))}  {safe(differences)}".rstrip()
            )
        part = "" if answer.get("complete") else ", the newest of them; there were more"
        typer.echo(f"{len(turns)} of {safe(answer.get('asked'))} jobs would come out otherwise{part}")
    if turns:
        raise typer.Exit(FAILED)


def _history(bridge: Remote, limit: int | None) -> list[Activation]:
    return bridge.read(list[Activation], items(bridge, PATH, {}, limit))


def _activation(bridge: Remote, answer: dict[str, Any]) -> Activation:
    return bridge.read(Activation, answer.get("activation"))


def _in_force(bridge: Remote, answer: dict[str, Any], *, cancel: bool, as_json: bool) -> None:
    """Tell what is in force now, and of the live runs that it would refuse; end those if that was asked for."""
    activation = _activation(bridge, answer)
    impact = bridge.get(f"{ADMIN}/bundles/{activation.content_hash}/impact").get("runs")
    runs = bridge.read(list[Affected], impact)
    ended: dict[str, str] = {}
    for one in runs if cancel else ():
        ended[one.run_id] = _cancelled(bridge, one, activation)
    if as_json:
        revoked = [asdict(one) | {"cancel": ended.get(one.run_id)} for one in runs]
        print_json(asdict(activation) | {"revoked": revoked})
    else:
        typer.echo(f"in force: {_what(activation)}")
        for one in runs:
            typer.echo(
                f"  {safe(one.run_id)}  job {one.job_id} by user {one.user_id} as {safe(one.account)}: "
                f"{safe(one.title)} [{safe(one.code)}]  {ended.get(one.run_id, 'goes on')}"
            )
        if runs and not cancel:
            typer.echo("Next, an operator ends those that should not go on: ci-bridge run cancel RUN --reason TEXT")
    if any(word != "cancelled" for word in ended.values()):
        raise typer.Exit(FAILED)


def _cancelled(bridge: Remote, run: Affected, activation: Activation) -> str:
    """Ask for the end of a run; the bundle is in force already, so one refusal must not hide the other runs."""
    try:
        bridge.post(
            f"{ADMIN}/runs/{run.run_id}/cancel",
            {"reason": f"activation {activation.number} of policy would refuse it: {run.code}"},
        )
    except BridgeError as error:
        return f"not cancelled [{error.code}]"
    return "cancelled"


def _what(one: Activation) -> str:
    second = f" and {safe(one.second)}" if one.second else ""
    ends = f", until {one.ends_at:%Y-%m-%d %H:%M} UTC" if one.ends_at else ""
    open_end = " (nobody has confirmed it)" if one.is_emergency and not one.second else ""
    return (
        f"{one.number}  {one.at:%Y-%m-%d %H:%M}  {one.kind.value}  {safe(one.content_hash)}  "
        f"by {safe(one.by)}{second}{ends}: {safe(one.reason)}{open_end}"
    )
