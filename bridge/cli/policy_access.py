"""``ci-bridge policy matrix, who-can, what-can, diff``: what a policy directory means for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import FAILED, explained, print_json
from bridge.errors import PolicyRefused
from bridge.model import PosixAccount
from bridge.policy.analysis import Matrix
from bridge.policy.analysis import matrix as matrix_of
from bridge.policy.bundle import Bundle, load_bundle
from bridge.policy.difference import difference
from bridge.policy.directory import NssDirectory
from bridge.policy.summary import Summary, guards, lines, summaries
from bridge.policy.summary import what_can as may
from bridge.policy.summary import who_can as who_may

app = typer.Typer()

Directory = Annotated[Path, typer.Argument(help="Directory with *.cedar, limits.toml, accounts.toml, clusters.toml.")]
Groups = Annotated[
    bool,
    typer.Option(
        "--ask-directory",
        help="Take the accounts' groups from this host's name service; otherwise groups are among the conditions.",
    ),
]


@app.command()
@explained
def matrix(directory: Directory = Path("policies"), ask_directory: Groups = False, as_json: AsJson = False) -> None:
    """Show what everybody of a policy directory may do, as which account, under which conditions and limits.

    Links that people made are not in the directory: GET /v1/admin/bundles/active/matrix counts them too.
    """
    found = _matrix(directory, ask_directory=ask_directory)
    _print(found, summaries(found), as_json=as_json)


@app.command("who-can")
@explained
def who_can(
    account: Annotated[str, typer.Option(help="Account on the cluster.")],
    directory: Directory = Path("policies"),
    ask_directory: Groups = False,
    as_json: AsJson = False,
) -> None:
    """Show which GitLab users may run as an account, and when; exit code 1 where nobody may."""
    found = _matrix(directory, ask_directory=ask_directory)
    _print(found, who_may(found, account), as_json=as_json)


@app.command("what-can")
@explained
def what_can(
    user: Annotated[int, typer.Option(help="GitLab's id of the user.")],
    issuer: Annotated[str | None, typer.Option(help="The GitLab; every one where it is left out.")] = None,
    directory: Directory = Path("policies"),
    ask_directory: Groups = False,
    as_json: AsJson = False,
) -> None:
    """Show all that a GitLab user may do; exit code 1 where that is nothing."""
    found = _matrix(directory, ask_directory=ask_directory)
    _print(found, may(found, user, issuer), as_json=as_json)


@app.command()
@explained
def diff(
    old: Annotated[Path, typer.Argument(help="The policy directory as it is.")],
    new: Annotated[Path, typer.Argument(help="The policy directory as it will be.")],
    ask_directory: Groups = False,
    as_json: AsJson = False,
) -> None:
    """Show what a new policy directory changes, for people and as written; ! is before what opens something."""
    before, after = load_bundle(old), load_bundle(new)
    accounts = _accounts([before, after]) if ask_directory else None
    found = difference(before, after, after.calendar.day(datetime.now(UTC)), accounts)
    if as_json:
        print_json(found.to_json())
        return
    for line in found.lines():
        typer.echo(line)


def _matrix(directory: Path, *, ask_directory: bool) -> Matrix:
    bundle = load_bundle(directory)
    accounts = _accounts([bundle]) if ask_directory else None
    return matrix_of(bundle, bundle.calendar.day(datetime.now(UTC)), directory=accounts)


def _accounts(bundles: Sequence[Bundle]) -> Mapping[str, PosixAccount]:
    """The accounts as this host knows them; one that it does not know counts as its row says."""
    names = {row.account for bundle in bundles for row in bundle.accounts.rows.values()}
    names |= {team.account for bundle in bundles for team in bundle.accounts.teams.by_member.values()}
    found = {}
    for name in sorted(names):
        try:
            found[name] = NssDirectory().lookup(name)
        except PolicyRefused:
            typer.secho(f"warning: this host does not know the account {name}", fg=typer.colors.YELLOW, err=True)
    return found


def _print(found: Matrix, some: Sequence[Summary], *, as_json: bool) -> None:
    forbids = guards(found)
    if as_json:
        print_json(
            {
                "content_hash": found.bundle.content_hash,
                "complete": found.complete,
                "decisions": found.pairs,
                "people": [asdict(one) for one in some],
                "forbids": forbids,
            }
        )
    else:
        for line in lines(some, found.bundle.clusters.by_name):
            typer.echo(line)
        typer.echo("Above all that stand the forbids:" if forbids else "There are no forbids.")
        for name, reason in forbids.items():
            typer.echo(f"    {name}: {reason}")
        if not found.complete:
            typer.echo("Not every combination of conditions was tried: there are too many.")
    if not any(one.access for one in some):
        raise typer.Exit(FAILED)
