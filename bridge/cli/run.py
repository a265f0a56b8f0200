"""``ci-bridge run``: what runs and ran, why it was let in, the end of its log, and its cancelling."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.paging import Limit, items
from bridge.cli.remote import Server, connect
from bridge.cli.review import ADMIN
from bridge.errors import NotFound, RequestRefused
from bridge.listing import Cancel, RunRow
from bridge.model import RunState
from bridge.settings import load_client

if TYPE_CHECKING:
    from bridge.api.admin.runs import RunDetail

app = typer.Typer(help="Runs: list, show, read the log's end, cancel; by your Kerberos ticket.", no_args_is_help=True)

PATH = f"{ADMIN}/runs"

RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as 'ci-bridge run list' shows it.")]

_RUN_ID = re.compile(r"[a-z0-9]{26}", re.ASCII)
_AGE = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@app.command("list")
@explained
def listed(
    state: Annotated[RunState | None, typer.Option("--state", help="Only those.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="Only those that run as it.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only those on it.")] = None,
    issuer: Annotated[str | None, typer.Option("--issuer", help="Only those of this GitLab, by its URL.")] = None,
    user_id: Annotated[int | None, typer.Option("--user-id", min=1, help="Only this GitLab user's.")] = None,
    project_id: Annotated[int | None, typer.Option("--project-id", min=1, help="Only this project's.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only newer ones: 30m, 12h, 7d.")] = None,
    limit: Limit = 50,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    asked: dict[str, object] = {
        "state": state.value if state else None,
        "account": account,
        "cluster": cluster,
        "issuer": issuer,
        "user_id": user_id,
        "project_id": project_id,
        "since": None if since is None else f"{datetime.now(UTC) - age(since):%Y-%m-%dT%H:%M:%S}Z",
    }
    bridge = connect(load_client(server))
    document = items(bridge, PATH, asked, limit)
    found = bridge.read(list[RunRow], document)
    if as_json:
        print_json(document)
        return
    for one in found:
        typer.echo(
            f"{safe(one.run_id)}  {one.created_at:%Y-%m-%d %H:%M}  {one.state.value:<9}  {safe(one.account)}@"
            f"{safe(one.cluster)}  job {one.job_id} of project {one.project_id} by user {one.user_id} "
            f"of {safe(one.issuer)}"
        )
    if not found:
        typer.echo("There is no such run.")


@app.command()
@explained
def show(run: RunName, server: Server = None, as_json: AsJson = False) -> None:
    """Show a run: who, where, by which policies and limits, its stages, and all that is on record."""
    # Web's parts take long to import, and only this command needs them.
    from bridge.api.admin.runs import RunDetail

    bridge = connect(load_client(server))
    document = bridge.get(f"{PATH}/{_in_path(run)}")
    found = bridge.read(RunDetail, document)
    if as_json:
        print_json(document)
        return
    for line in _lines(found):
        typer.echo(line)


@app.command()
@explained
def log(run: RunName, server: Server = None) -> None:
    """Print the end of a live run's log as it came from the cluster, unmasked; the look is on record."""
    text = connect(load_client(server)).get_bytes(f"{PATH}/{_in_path(run)}/log").decode("utf-8", errors="replace")
    # What a job wrote does nothing to an operator's terminal (T45).
    shown = "".join(f"{safe(line)}\n" for line in text.splitlines())
    sys.stdout.write(shown)


@app.command()
@explained
def cancel(
    run: RunName,
    reason: Annotated[str, typer.Option("--reason", help="For the record.")],
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Have a run ended, wherever it is; again is harmless."""
    bridge = connect(load_client(server))
    document = bridge.post(f"{PATH}/{_in_path(run)}/cancel", {"reason": reason}).get("cancel")
    found = bridge.read(Cancel, document)
    if as_json:
        print_json(document)
        return
    typer.echo(f"cancelled {safe(found.run_id)} by {safe(found.cancelled_by)}: {safe(found.reason)}")
    typer.echo(f"Next, see it end: ci-bridge run show {safe(found.run_id)}")


def age(text: str) -> timedelta:
    """Return a duration such as ``30d``; raises RequestRefused ``run.age``."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise RequestRefused("run.age", "That is no age.", "Write a number and its unit: 30m, 12h or 7d.")
    return int(found[1]) * _UNITS[found[2]]


def _in_path(run: str) -> str:
    if not _RUN_ID.fullmatch(run):
        raise NotFound("remote.no_id", "That is not an id of a run.", "Copy it as 'ci-bridge run list' shows it.")
    return run


def _lines(found: RunDetail) -> list[str]:
    run, grant = found.run, found.grant
    plan = ", ".join(f"{name} {safe(value)}" for name, value in _said(grant.plan))
    lines = [
        f"run      {safe(run.run_id)}, {run.state.value}, attempt {run.attempt}",
        f"who      user {run.user_id} of {safe(run.issuer)} as {safe(run.account)} (uid {run.uid})",
        f"job      {run.job_id} of {safe(grant.project_path)}, pipeline {grant.pipeline_id} ({safe(grant.ref)})",
        f"where    {safe(run.cluster)}: {plan}",
        f"since    {run.created_at:%Y-%m-%d %H:%M:%S}, at most until {run.not_after:%Y-%m-%d %H:%M:%S}",
        f"policy   {safe(', '.join(grant.policy_ids))}; limits {safe(', '.join(grant.limits))}",
        f"bundle   {safe(grant.bundle_hash)}",
    ]
    if found.cancel is not None:
        lines.append(f"cancel   by {safe(found.cancel.cancelled_by)}: {safe(found.cancel.reason)}")
    for stage in found.stages:
        lines.append(f"stage    {safe(stage.name)}  {safe(stage.state.value)}")
    for event in found.timeline:
        told = " ".join(safe(word) for word in (event.act, event.code, event.node) if word)
        slurm = f" slurm {event.slurm_job_id}" if event.slurm_job_id else ""
        place = f"{event.type}/{event.stage}" if event.stage else event.type
        lines.append(f"{event.at:%H:%M:%S}  {safe(place):<24}  {safe(event.phase):<7} {told}{slurm}".rstrip())
    return lines


def _said(plan: Any) -> list[tuple[str, object]]:
    return [(name, value) for name in plan.__dataclass_fields__ if (value := getattr(plan, name)) not in (None, (), 0)]
