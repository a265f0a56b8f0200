"""``ci-bridge doctor``: is all there that the bridge needs, and what to do where it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.audit import AsJson
from bridge.cli.ledger import has_database, open_ledger
from bridge.cli.output import FAILED, explained, print_json
from bridge.cli.service import Config
from bridge.doctor.finding import Finding, State
from bridge.doctor.identity import check_identity
from bridge.doctor.kerberos import Wishes, check_kerberos
from bridge.doctor.ldapread import Source
from bridge.doctor.remedies import KdcKind
from bridge.settings import load

_COLOURS = {
    State.OK: typer.colors.GREEN,
    State.WARNING: typer.colors.YELLOW,
    State.FAILED: typer.colors.RED,
    State.NOT_CHECKED: typer.colors.YELLOW,
}


class Section(StrEnum):
    """A part of the check-up that can be asked for alone."""

    IDENTITY = "identity"
    KERBEROS = "kerberos"


@explained
def doctor(
    section: Annotated[Section | None, typer.Argument(help="Only this one.", show_default="all")] = None,
    user: Annotated[str | None, typer.Option("--user", help="A test user to get tickets for, and drop them.")] = None,
    kdc: Annotated[KdcKind, typer.Option("--kdc", help="Whose commands to name as remedies.")] = KdcKind.MIT,
    ldap: Annotated[
        str | None, typer.Option("--ldap", help="Read the KDC's database too: ldapi:///, ldaps://H.")
    ] = None,
    ldap_base: Annotated[str, typer.Option("--ldap-base", help="Where to search.", show_default="all of it")] = "",
    ldap_bind: Annotated[str, typer.Option("--ldap-bind", help="A reader's DN.", show_default="SASL EXTERNAL")] = "",
    ldap_password: Annotated[
        Path | None, typer.Option("--ldap-password-file", help="The reader's password, without a line end.")
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Check issuers, the KDC, clocks, rows of accounts.toml and links; exit code 1 where something is wrong."""
    settings = load(config)
    ledger = open_ledger(settings, "ci-bridge doctor") if has_database(settings) else None
    source = Source(ldap, ldap_base, ldap_bind, ldap_password) if ldap else None
    sections: dict[Section, Callable[[], Iterator[Finding]]] = {
        Section.IDENTITY: lambda: check_identity(settings, ledger),
        Section.KERBEROS: lambda: check_kerberos(settings, Wishes(kdc, user, source)),
    }
    wanted = sections if section is None else {section: sections[section]}
    found = {name: _run(name, check, as_json=as_json) for name, check in wanted.items()}
    bad = any(finding.state is State.FAILED for findings in found.values() for finding in findings)
    if as_json:
        document = {name.value: [asdict(finding) for finding in findings] for name, findings in found.items()}
        print_json({"ok": not bad, "sections": document})
    if bad:
        raise typer.Exit(FAILED)


def _run(name: Section, check: Callable[[], Iterator[Finding]], *, as_json: bool) -> list[Finding]:
    """All findings of a section; each is shown as soon as it is there, which is the progress that one sees."""
    if not as_json:
        typer.secho(name.value, bold=True)
    findings = []
    for finding in check():
        findings.append(finding)
        if not as_json:
            _show(finding)
        elif sys.stderr.isatty():
            typer.echo(f"{name.value}: {finding.check} {finding.state}", err=True)
    return findings


def _show(finding: Finding) -> None:
    state = typer.style(f"{finding.state:<11}", fg=_COLOURS[finding.state])
    typer.echo(f"  {state}  {finding.check:<19}  {finding.subject}: {finding.detail}")
    if finding.remedy:
        typer.echo(f"{'':<15}What to do: {finding.remedy}")
    sys.stdout.flush()
