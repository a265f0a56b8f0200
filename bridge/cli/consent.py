"""``ci-bridge consent``: the owner of an account says which projects' jobs may run as it, and stops them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.remote import Remote, Server, connect
from bridge.errors import RequestRefused
from bridge.people.consenting import ConsentAct, Standing
from bridge.register import Consent, ConsentMode
from bridge.settings import load_client

app = typer.Typer(help="Which projects' jobs may run as you; proven by your Kerberos ticket.", no_args_is_help=True)

Project = Annotated[int, typer.Argument(min=1, metavar="PROJECT", help="GitLab's number of the project.")]
Issuer = Annotated[str | None, typer.Option("--issuer", help="GitLab's URL; needed where you are linked from several.")]

_NOBODY = "Nobody may act as you: every job is refused until you say 'ci-bridge consent resume'."
_SITE = (
    "Projects may act as you by the site's rule, which 'ci-bridge consent show' tells, but for those that you denied."
)
_LISTED = "Only the projects that you allowed may act as you."
_MODES = {
    ConsentMode.SITE: "Every project that policy lets in may act as you, but for those that you denied.",
    ConsentMode.LISTED: _LISTED,
    ConsentMode.STOPPED: _NOBODY,
    ConsentMode.LISTED_STOPPED: _NOBODY,
}


@app.command()
@explained
def show(server: Server = None, as_json: AsJson = False) -> None:
    """Show who becomes your account, and which projects may act as you."""
    bridge = connect(load_client(server))
    document = bridge.get("/v1/consent").get("standing")
    standing = bridge.read(Standing, document)
    if as_json:
        print_json(document)
        return
    for line in _lines(standing):
        typer.echo(line)


@app.command()
@explained
def allow(project: Project, issuer: Issuer = None, server: Server = None, as_json: AsJson = False) -> None:
    """Let the jobs of a project act as you."""
    _say(ConsentAct.ALLOW, server, as_json, project=project, issuer=issuer)


@app.command()
@explained
def deny(project: Project, issuer: Issuer = None, server: Server = None, as_json: AsJson = False) -> None:
    """Let the jobs of a project no longer act as you; those that run are ended."""
    _say(ConsentAct.DENY, server, as_json, project=project, issuer=issuer)


@app.command("only-listed")
@explained
def only_listed(server: Server = None, as_json: AsJson = False) -> None:
    """Let nobody but the projects that you allowed act as you."""
    _say(ConsentAct.ONLY_LISTED, server, as_json)


@app.command()
@explained
def unlist(server: Server = None, as_json: AsJson = False) -> None:
    """Take 'only-listed' back: again as the site's rule is, but for what you denied."""
    _say(ConsentAct.UNLIST, server, as_json)


@app.command()
@explained
def stop(server: Server = None, as_json: AsJson = False) -> None:
    """Let nobody act as you, now: what runs is ended, and nothing new begins until you resume."""
    _say(ConsentAct.STOP, server, as_json)


@app.command()
@explained
def resume(server: Server = None, as_json: AsJson = False) -> None:
    """Take 'stop' back: all is as it was before; what was ended stays ended."""
    _say(ConsentAct.RESUME, server, as_json)


def _say(
    act: ConsentAct, server: str | None, as_json: bool, *, project: int | None = None, issuer: str | None = None
) -> None:
    settings = load_client(server)
    bridge = connect(settings)
    gitlab = None if project is None else issuer or settings.issuer or _only_gitlab(bridge)
    document = bridge.post("/v1/consent", {"act": act.value, "issuer": gitlab, "project_id": project}).get("consent")
    consent = bridge.read(Consent, document)
    if as_json:
        print_json(document)
        return
    about = "" if project is None else f": project {project} of {safe(gitlab)}"
    typer.echo(f"{act.value}{about}, for {safe(consent.account)}")
    for line in _said(consent, ask_first=None):
        typer.echo(line)


def _only_gitlab(bridge: Remote) -> str:
    """The GitLab from which somebody becomes the account; a project's number means nothing without one."""
    standing = bridge.read(Standing, bridge.get("/v1/consent").get("standing"))
    known = sorted({link.issuer for link in standing.links} | {issuer for issuer, _ in standing.rows})
    if len(known) != 1:
        raise RequestRefused(
            "consent.issuer",
            "Which GitLab's project is meant is not clear.",
            f"Name one with --issuer: {safe(', '.join(known))}." if known else "Name the GitLab's URL with --issuer.",
        )
    return known[0]


def _lines(standing: Standing) -> Iterator[str]:
    yield f"account {safe(standing.account)} (uid {standing.uid})"
    yield "GitLab users whose jobs run as you:"
    for link in standing.links:
        login = f" ({safe(link.user_login)})" if link.user_login else ""
        yield f"  user {link.user_id}{login} of {safe(link.issuer)}, by link {safe(link.link_id)}"
    for issuer, user_id in standing.rows:
        yield f"  user {user_id} of {safe(issuer)}, by the administrators' accounts.toml"
    if not standing.links and not standing.rows:
        yield "  nobody; see 'ci-bridge account link'"
    if standing.consent is not None:
        yield from _said(standing.consent, ask_first=standing.ask_first)
    else:
        yield _mode(ConsentMode.SITE, ask_first=standing.ask_first)


def _said(consent: Consent, *, ask_first: bool | None) -> Iterator[str]:
    yield _mode(consent.mode, ask_first=ask_first)
    for word, projects in (("allowed", consent.allowed), ("denied", consent.denied)):
        for project in projects:
            yield f"  {word:<7}  project {project.project_id} of {safe(project.issuer)}"


def _mode(mode: ConsentMode, *, ask_first: bool | None) -> str:
    """What a mode means; with ``ask_first`` None the site's rule is not known here."""
    if mode is not ConsentMode.SITE:
        return _MODES[mode]
    return {None: _SITE, True: _LISTED, False: _MODES[mode]}[ask_first]
