"""``ci-bridge account``: which GitLab user is which account on the cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.remote import Remote, Server, connect, id_in_path
from bridge.register import Link
from bridge.settings import load_client

app = typer.Typer(help="Which GitLab user becomes which account on the cluster.", no_args_is_help=True)

LinkId = Annotated[str, typer.Argument(metavar="ID", help="As 'ci-bridge account links' shows it.")]
Reason = Annotated[str, typer.Option("--reason", help="For the record.")]


@app.command()
@explained
def whoami(server: Server = None, as_json: AsJson = False) -> None:
    """Show whom the bridge takes you for, by your Kerberos ticket."""
    document = connect(load_client(server)).get("/v1/me")
    if as_json:
        print_json(document)
        return
    roles = document.get("roles") or ["none"]
    typer.echo(f"principal  {safe(document.get('principal'))}")
    typer.echo(f"account    {safe(document.get('account') or 'none: this is not a person')}")
    typer.echo(f"roles      {safe(', '.join(map(str, roles)))}")


@app.command()
@explained
def links(server: Server = None, as_json: AsJson = False) -> None:
    """Show the links of your account; with a role, those of all."""
    bridge = connect(load_client(server))
    document = bridge.get("/v1/links").get("links")
    found = bridge.read(list[Link], document)
    if as_json:
        print_json(document)
        return
    for link in found:
        typer.echo(_line(link))
    if not found:
        typer.echo("There is no link.")


@app.command()
@explained
def link(server: Server = None, as_json: AsJson = False) -> None:
    """Say where to link your own GitLab user to your account: that takes a browser."""
    address = f"{load_client(server).server}/link"
    if as_json:
        print_json({"address": address})
        return
    typer.echo(f"Open this address in a browser that has your Kerberos ticket: {address}")


@app.command()
@explained
def propose(
    issuer: Annotated[str, typer.Option("--issuer", help="GitLab's URL, as in the bridge's settings.")],
    user_id: Annotated[int, typer.Option("--user-id", min=1, help="GitLab's number of the user.")],
    account: Annotated[str, typer.Option("--account", help="The posix account.")],
    reason: Reason,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Propose a link for somebody else, as an administrator; it counts once another one has approved it."""
    body = {"issuer": issuer, "user_id": user_id, "account": account, "reason": reason}
    bridge = connect(load_client(server))
    _show(bridge, bridge.create("/v1/links", body), "proposed", as_json)


@app.command()
@explained
def approve(link_id: LinkId, reason: Reason, server: Server = None, as_json: AsJson = False) -> None:
    """Approve a link that another administrator proposed."""
    _decide("approve", "approved", link_id, reason, server, as_json)


@app.command()
@explained
def reject(link_id: LinkId, reason: Reason, server: Server = None, as_json: AsJson = False) -> None:
    """Reject a link that was proposed."""
    _decide("reject", "rejected", link_id, reason, server, as_json)


@app.command()
@explained
def end(link_id: LinkId, reason: Reason, server: Server = None, as_json: AsJson = False) -> None:
    """End a link: one to your own account, or any as an operator."""
    _decide("end", "ended", link_id, reason, server, as_json)


def _decide(verb: str, done: str, link_id: str, reason: str, server: str | None, as_json: bool) -> None:
    path = f"/v1/links/{id_in_path(link_id)}/{verb}"
    bridge = connect(load_client(server))
    _show(bridge, bridge.post(path, {"reason": reason}), done, as_json)


def _show(bridge: Remote, answer: dict[str, Any], done: str, as_json: bool) -> None:
    document = answer.get("link")
    link = bridge.read(Link, document)
    if as_json:
        print_json(document)
        return
    typer.echo(f"{done}: {_what(link)} [{safe(link.link_id)}]")


def _line(link: Link) -> str:
    moment, who = (link.decided_at or link.proposed_at), (link.decided_by or link.proposed_by)
    if link.ended_at is not None and link.ended_by is not None:
        moment, who = link.ended_at, link.ended_by
    since = f"{moment:%Y-%m-%d %H:%M}"
    return f"{safe(link.link_id)}  {since}  {link.state.value:<8}  {_what(link)}  by {safe(who)}: {link.reason!r}"


def _what(link: Link) -> str:
    login = f" ({safe(link.user_login)})" if link.user_login else ""
    return f"user {link.user_id}{login} of {safe(link.issuer)} is {safe(link.account)} (uid {link.uid})"
