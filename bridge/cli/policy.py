"""``ci-bridge policy``: check a policy directory, and run its cases, before anybody relies on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import FAILED, explained, print_json
from bridge.errors import BridgeError
from bridge.policy.bundle import load_bundle
from bridge.policy.trial import run_cases

app = typer.Typer(help="The policy: who may run as whom, where, with how much.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(help="Directory with *.cedar, limits.toml, accounts.toml, clusters.toml.")]


@app.command()
@explained
def check(directory: Directory = Path("policies"), as_json: AsJson = False) -> None:
    """Load a policy directory and say all that is wrong with it, by file and line."""
    try:
        bundle = load_bundle(directory)
    except BridgeError as error:
        problems = error.context.get("problems", ())
        if as_json:
            print_json({"ok": False, "code": error.code, "problems": problems})
        for problem in problems if isinstance(problems, tuple) else ():
            typer.secho(str(problem), fg=typer.colors.RED, err=True)
        raise
    if as_json:
        warnings = [asdict(warning) for warning in bundle.warnings]
        print_json({"ok": True, "content_hash": bundle.content_hash, "warnings": warnings})
        return
    for warning in bundle.warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW, err=True)
    typer.echo(f"ok: bundle {bundle.content_hash}")


@app.command("test")
@explained
def run_the_cases(directory: Directory = Path("policies"), as_json: AsJson = False) -> None:
    """Decide the directory's own cases by it; exit code 1 where one comes out otherwise than written."""
    bundle = load_bundle(directory)
    results = run_cases(bundle)
    failed = [result for result in results if not result.passed]
    if as_json:
        print_json({"ok": not failed, "cases": [asdict(result) | {"passed": result.passed} for result in results]})
    else:
        for result in results:
            typer.echo(f"{'ok  ' if result.passed else 'FAIL'} {result.name}")
            for difference in result.differences:
                typer.echo(f"     {difference}")
        typer.echo(f"{len(results) - len(failed)} of {len(results)} cases as written")
    if failed:
        raise typer.Exit(FAILED)
