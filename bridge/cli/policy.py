"""``ci-bridge policy``: check a policy directory, and run its cases, before anybody relies on it.

``proposals``, ``activations`` and ``why`` have the commands that ask the bridge.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli import activations, policy_access, proposals, why
from bridge.cli.audit import AsJson
from bridge.cli.explanation import lines
from bridge.cli.output import FAILED, explained, print_json
from bridge.errors import BridgeError, RequestRefused
from bridge.policy.bundle import load_bundle
from bridge.policy.cases import Situation, parse_situation
from bridge.policy.explain import Explainer
from bridge.policy.files import MAX_FILE_BYTES
from bridge.policy.findings import Severity
from bridge.policy.lint import lint
from bridge.policy.problems import InvalidBundle
from bridge.policy.trial import run_cases

app = typer.Typer(help="The policy: who may run as whom, where, with how much.", no_args_is_help=True)
app.add_typer(policy_access.app)
app.add_typer(proposals.app)
app.add_typer(activations.app)
app.add_typer(why.app)

Directory = Annotated[Path, typer.Argument(help="Directory with *.cedar, limits.toml, accounts.toml, clusters.toml.")]


@app.command()
@explained
def check(
    directory: Directory = Path("policies"),
    strict: Annotated[bool, typer.Option("--strict", help="Fail for warnings too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Load a policy directory and say all that is wrong or strange about it, by file and line."""
    try:
        bundle = load_bundle(directory)
    except BridgeError as error:
        problems = error.context.get("problems", ())
        if as_json:
            print_json({"ok": False, "code": error.code, "problems": problems})
        for problem in problems if isinstance(problems, tuple) else ():
            typer.secho(str(problem), fg=typer.colors.RED, err=True)
        raise
    findings = lint(bundle, datetime.now(UTC))
    bad = any(strict or finding.severity is Severity.ERROR for finding in findings)
    if as_json:
        found = [asdict(finding) for finding in findings]
        print_json({"ok": not bad, "content_hash": bundle.content_hash, "findings": found})
    else:
        for finding in findings:
            colour = typer.colors.RED if finding.severity is Severity.ERROR else typer.colors.YELLOW
            typer.secho(f"{finding.severity}: {finding.problem} [{finding.check}]", fg=colour, err=True)
        typer.echo(f"{'not ok' if bad else 'ok'}: bundle {bundle.content_hash}")
    if bad:
        raise typer.Exit(FAILED)


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


@app.command()
@explained
def explain(
    directory: Directory = Path("policies"),
    case: Annotated[
        str, typer.Option("--case", help="A file with one [[case]], whose expect may be left out; - is standard input.")
    ] = "-",
    as_json: AsJson = False,
) -> None:
    """Say why a made-up job may run or not: which rules apply, and what the nearest ones lack."""
    bundle = load_bundle(directory)
    explanation = Explainer(bundle).explain_case(_situation(case))
    if as_json:
        print_json(explanation.to_json())
        return
    for line in lines(explanation):
        typer.echo(line)


def _situation(case: str) -> Situation:
    try:
        if case == "-":
            return parse_situation("standard input", sys.stdin.read(MAX_FILE_BYTES))
        return parse_situation(case, Path(case).read_text(encoding="utf-8"))
    except (InvalidBundle, UnicodeDecodeError) as error:
        raise RequestRefused(
            "policy.case_invalid",
            f"The case can not be read: {error}.",
            "Write one [[case]] as in the directory's cases; expect may be left out.",
        ) from error
