"""``ci-bridge policy propose, submit, approve``: how a policy directory comes before other people, and they say yes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.cli import review
from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.paging import Limit, items
from bridge.cli.remote import Remote, Server, connect, id_in_path
from bridge.cli.review import ADMIN
from bridge.errors import BridgeError
from bridge.policy.files import content_hash
from bridge.proposals import OPEN_STATES, Proposal, ProposalState
from bridge.settings import load_client

app = typer.Typer()

PATH = f"{ADMIN}/proposals"

Directory = Annotated[Path, typer.Argument(help="Directory with *.cedar, limits.toml, accounts.toml, clusters.toml.")]
ProposalId = Annotated[str, typer.Argument(metavar="ID", help="As 'ci-bridge policy proposals' shows it.")]
Title = Annotated[str, typer.Option("--title", help="What it changes, and why; approvers see it.")]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="HASH", help="The bundle that you began with; else it is the one in force."),
]
Reason = Annotated[str, typer.Option("--reason", help="For the record.")]
Hash = Annotated[str | None, typer.Option("--hash", metavar="HASH", help="The content that you have read.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask; without a terminal it needs --hash too.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with an API token, instead of a ticket; else $CI_BRIDGE_TOKEN_FILE."),
]


@app.command()
@explained
def propose(
    directory: Directory,
    title: Title,
    base: Base = None,
    token_file: TokenFile = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Keep a policy directory in the bridge as a draft of yours; it need not be right yet."""
    files = review.directory_files(directory)
    bridge = connect(load_client(server, token_file))
    _told(_proposed(bridge, title, files, base), as_json)


@app.command()
@explained
def rewrite(
    proposal_id: ProposalId,
    directory: Directory,
    base: Base = None,
    token_file: TokenFile = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Put new content into a proposal of yours: it is a draft then, and approvals of the old content are gone."""
    files = review.directory_files(directory)
    bridge = connect(load_client(server, token_file))
    path = f"{PATH}/{id_in_path(proposal_id)}"
    before, _ = review.read_proposal(bridge, proposal_id)
    body = {"files": dict(files), "base_hash": base}
    _told(bridge.read(Proposal, bridge.change("PUT", path, body, version=before.version).get("proposal")), as_json)


@app.command()
@explained
def submit(
    what: Annotated[str, typer.Argument(metavar="ID|DIRECTORY", help="A draft of yours, or a policy directory.")],
    title: Annotated[str | None, typer.Option("--title", help="Of a directory: what it changes, and why.")] = None,
    base: Base = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Of a directory: withdraw your other open proposals.")
    ] = False,
    token_file: TokenFile = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Put a draft, or a policy directory in one step, before the approvers; from a pipeline by an API token.

    Doing it again is harmless: what is in force already, or submitted, stays as it is.
    """
    if title is None:
        if Path(what).is_dir():
            raise typer.BadParameter("a directory needs --title")
        bridge = connect(load_client(server, token_file))
        before, _ = review.read_proposal(bridge, id_in_path(what))
        _told(_submitted(bridge, before, base), as_json)
        return
    files = review.directory_files(Path(what))
    bridge = connect(load_client(server, token_file))
    standing, _ = review.read_active(bridge)
    if standing.content_hash == standing.base_hash == content_hash(files):
        if as_json:
            print_json({"in_force": standing.content_hash})
        else:
            typer.echo(f"in force already: bundle {safe(standing.content_hash)}")
        return
    mine = _mine(bridge)
    same = [one for one in mine if one.content_hash == content_hash(files) and one.base_number == standing.base_number]
    proposal = same[0] if same else _proposed(bridge, title, files, base)
    if proposal.state is ProposalState.DRAFT:
        proposal = _submitted(bridge, proposal, base)
    if replace:
        for one in mine:
            if one.proposal_id != proposal.proposal_id:
                bridge.change("POST", f"{PATH}/{id_in_path(one.proposal_id)}/withdraw", {}, version=one.version)
    _told(proposal, as_json)


@app.command()
@explained
def withdraw(
    proposal_id: ProposalId, token_file: TokenFile = None, server: Server = None, as_json: AsJson = False
) -> None:
    """Take a proposal of yours back."""
    bridge = connect(load_client(server, token_file))
    before, _ = review.read_proposal(bridge, id_in_path(proposal_id))
    _told(_step(bridge, before, "withdraw", {}), as_json)


@app.command()
@explained
def approve(
    proposal_id: ProposalId,
    reason: Reason,
    read: Hash = None,
    yes: Yes = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show all that somebody else's proposal changes, and approve exactly that content."""
    bridge = connect(load_client(server))
    proposal, files = review.read_proposal(bridge, id_in_path(proposal_id))
    found = review.reviewed(bridge, files)
    for line in (*_head(proposal), *found.lines()):
        typer.echo(line, err=True)
    review.require_shown(found.content_hash, read, yes=yes, question=f"Approve {found.content_hash[:12]}?")
    decision = {"content_hash": found.content_hash, "reason": reason}
    _told(_step(bridge, proposal, "approve", decision), as_json)


@app.command()
@explained
def reject(proposal_id: ProposalId, reason: Reason, server: Server = None, as_json: AsJson = False) -> None:
    """Reject what somebody else submitted."""
    bridge = connect(load_client(server))
    proposal, _ = review.read_proposal(bridge, id_in_path(proposal_id))
    decision = {"content_hash": proposal.content_hash, "reason": reason}
    _told(_step(bridge, proposal, "reject", decision), as_json)


@app.command()
@explained
def proposals(
    state: Annotated[ProposalState | None, typer.Option("--state", help="Only those.")] = None,
    author: Annotated[str | None, typer.Option("--author", help="Only this principal's.")] = None,
    limit: Limit = 50,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List proposals, newest first."""
    bridge = connect(load_client(server))
    asked = {"state": state.value if state else None, "author": author}
    found = bridge.read(list[Proposal], items(bridge, PATH, asked, limit))
    if as_json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        typer.echo(
            f"{safe(one.proposal_id)}  {one.changed_at:%Y-%m-%d %H:%M}  {one.state.value:<9}  "
            f"{safe(one.content_hash[:12])}  by {safe(one.author)}: {safe(one.title)}"
        )
    if not found:
        typer.echo("There is no such proposal.")


@app.command()
@explained
def show(
    proposal_id: ProposalId,
    to: Annotated[Path | None, typer.Option("--to", help="Write its files into this new directory.")] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show a proposal: what it changes over the bundle in force, how its cases come out, and what is strange."""
    bridge = connect(load_client(server))
    proposal, files = review.read_proposal(bridge, id_in_path(proposal_id))
    if to is not None:
        review.write_files(to, files)
    try:
        found: review.Review | None = review.reviewed(bridge, files)
        problems: tuple[Any, ...] = ()
    except BridgeError as error:
        if error.code != "policy.invalid":
            raise
        found = None
        known = error.context.get("problems")
        problems = known if isinstance(known, tuple) else (error.title,)
    if as_json:
        whole = {"proposal": asdict(proposal), "review": found.to_json() if found else None, "problems": problems}
        print_json(whole)
        return
    for line in (*_head(proposal), *(found.lines() if found else ())):
        typer.echo(line)
    for problem in problems:
        typer.echo(f"error: {safe(problem)}")


def _mine(bridge: Remote) -> list[Proposal]:
    """The caller's own proposals that are not at an end."""
    me = str(bridge.get(f"{ADMIN}/me").get("principal"))
    found = bridge.read(list[Proposal], items(bridge, PATH, {"author": me}, None))
    return [one for one in found if one.state in OPEN_STATES and one.author == me]


def _proposed(bridge: Remote, title: str, files: review.Files, base: str | None) -> Proposal:
    body = {"title": title, "files": dict(files), "base_hash": base}
    return bridge.read(Proposal, bridge.create(PATH, body).get("proposal"))


def _submitted(bridge: Remote, before: Proposal, base: str | None) -> Proposal:
    return _step(bridge, before, "submit", {"base_hash": base})


def _step(bridge: Remote, before: Proposal, verb: str, body: dict[str, Any]) -> Proposal:
    path = f"{PATH}/{id_in_path(before.proposal_id)}/{verb}"
    return bridge.read(Proposal, bridge.change("POST", path, body, version=before.version).get("proposal"))


def _head(proposal: Proposal) -> list[str]:
    decided = f", {proposal.state.value} by {safe(proposal.decided_by)}" if proposal.decided_by else ""
    return [
        f"proposal {safe(proposal.proposal_id)}: {safe(proposal.title)}",
        f"author   {safe(proposal.author)}",
        f"state    {proposal.state.value}{decided}{f': {safe(proposal.reason)}' if proposal.reason else ''}",
        f"bundle   {safe(proposal.content_hash)}",
    ]


_NEXT: dict[ProposalState, Callable[[str], str]] = {
    ProposalState.DRAFT: lambda one: f"when it is ready: ci-bridge policy submit {one}",
    ProposalState.SUBMITTED: lambda one: (
        f"an approver who is not its author: ci-bridge policy approve {one} --reason TEXT"
    ),
    ProposalState.APPROVED: lambda one: f"an approver or operator: ci-bridge policy activate {one} --reason TEXT",
}


def _told(proposal: Proposal, as_json: bool) -> None:
    if as_json:
        print_json(asdict(proposal))
        return
    named = safe(proposal.proposal_id)
    typer.echo(f"{proposal.state.value} {named}: {safe(proposal.title)} [bundle {safe(proposal.content_hash)}]")
    if proposal.state in _NEXT:
        typer.echo(f"Next, {_NEXT[proposal.state](named)}")
