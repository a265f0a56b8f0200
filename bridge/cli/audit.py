"""``ci-bridge audit``: read the log, and check that nobody has changed it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from bridge.audit.log import Entry
from bridge.audit.log import verify as verify_log
from bridge.cli.ledger import open_ledger
from bridge.cli.output import FAILED, explained, print_json
from bridge.cli.service import Config
from bridge.errors import RequestRefused
from bridge.model import RunId
from bridge.settings import load

app = typer.Typer(help="The audit log.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
@explained
def timeline(
    job: Annotated[int | None, typer.Option(help="GitLab's job id.")] = None,
    run: Annotated[str | None, typer.Option(help="The run's id.")] = None,
    reference: Annotated[str | None, typer.Option(help="The reference in a job log or an error.")] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show all that is on record of one job, run or reference, in order."""
    if job is None and run is None and reference is None:
        raise RequestRefused("audit.which", "Nothing says what to show.", "Give --job, --run or --reference.")
    with open_ledger(load(config), "ci-bridge audit").read() as view:
        entries = view.timeline(run_id=RunId(run) if run else None, job_id=job, reference=reference)
    if as_json:
        print_json([json.loads(entry.leaf) for entry in entries])
    else:
        _print_lines(entries)
    if not entries:
        raise RequestRefused(
            "audit.nothing",
            "The log has nothing of that.",
            "Check the number; refusals before step 1 have only a reference.",
        )


@app.command()
@explained
def verify(as_json: AsJson = False, config: Config = None) -> None:
    """Compute the whole log anew; exit code 1 names the first entry that is not what was written."""
    with open_ledger(load(config), "ci-bridge audit").read() as view:
        verdict = verify_log(view.entries, view.head())
    if as_json:
        print_json(
            {
                "ok": verdict.ok,
                "size": verdict.size,
                "root": verdict.root.hex(),
                "bad_seq": verdict.bad_seq,
                "reason": verdict.reason,
            }
        )
    elif verdict.ok:
        typer.echo(f"ok: {verdict.size} entries, root {verdict.root.hex()}")
    else:
        typer.secho(f"entry {verdict.bad_seq}: {verdict.reason}", fg=typer.colors.RED, err=True)
        typer.echo(
            "What to do: stop the bridge, keep the database as it is, and look for who could write to it.", err=True
        )
    if not verdict.ok:
        raise typer.Exit(FAILED)


def _print_lines(entries: Sequence[Entry]) -> None:
    for entry in entries:
        members = json.loads(entry.leaf)
        moment = datetime.fromtimestamp(members["ts"] / 1000, UTC)
        what = f"{members['type']}{'/' + members['stage'] if 'stage' in members else ''}"
        typer.echo(f"{members['seq']:>6}  {moment:%H:%M:%S.%f}  {what:<32} {members['phase']:<8} {_facts(members)}")


def _facts(members: dict[str, Any]) -> str:
    """Put the telling members of a record on one line."""
    target, tickets = members.get("target", {}), members.get("tickets", {})
    facts = {
        "as": f"{target['account']}({target['uid']})" if "uid" in target else target.get("account"),
        "node": target.get("node"),
        "state": members.get("detail", {}).get("state"),
        "slurm": members.get("slurm_job_id"),
        "exit": members.get("exit_code"),
        "tickets": ",".join(tickets.get("services", [])) or None,
        "until": tickets.get("end"),
        "code": members.get("code"),
        "ref": members["reference"],
    }
    return " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
