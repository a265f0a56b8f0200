"""``ci-bridge doctor``: is all there that the bridge needs, and what to do where it is not."""

from __future__ import annotations

from dataclasses import asdict

import typer

from bridge.cli.audit import AsJson
from bridge.cli.ledger import has_database, open_ledger
from bridge.cli.output import FAILED, explained, print_json
from bridge.cli.service import Config
from bridge.doctor.finding import Finding, State
from bridge.doctor.identity import check_identity
from bridge.settings import load

_COLOURS = {State.OK: typer.colors.GREEN, State.FAILED: typer.colors.RED, State.NOT_CHECKED: typer.colors.YELLOW}


@explained
def doctor(as_json: AsJson = False, config: Config = None) -> None:
    """Check issuers, clocks, rows of accounts.toml and links; exit code 1 where something is wrong."""
    settings = load(config)
    ledger = open_ledger(settings, "ci-bridge doctor") if has_database(settings) else None
    sections = {"identity": list(check_identity(settings, ledger))}
    bad = any(finding.state is State.FAILED for findings in sections.values() for finding in findings)
    if as_json:
        document = {name: [asdict(finding) for finding in findings] for name, findings in sections.items()}
        print_json({"ok": not bad, "sections": document})
    else:
        for name, findings in sections.items():
            typer.secho(name, bold=True)
            for finding in findings:
                _show(finding)
    if bad:
        raise typer.Exit(FAILED)


def _show(finding: Finding) -> None:
    state = typer.style(f"{finding.state:<11}", fg=_COLOURS[finding.state])
    typer.echo(f"  {state}  {finding.check:<16}  {finding.subject}: {finding.detail}")
    if finding.remedy:
        typer.echo(f"{'':<15}What to do: {finding.remedy}")
