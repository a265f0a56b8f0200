"""``ci-bridge api-token``: tokens by which programs call the bridge's API in their owner's name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bridge.access import MAX_TOKEN_LIFE
from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.remote import Server, connect, id_in_path
from bridge.cli.review import ADMIN
from bridge.people.api_tokens import ShownToken
from bridge.policy.roles import Role
from bridge.settings import load_client

app = typer.Typer(help="Tokens by which programs call the bridge's API in your name.", no_args_is_help=True)

PATH = f"{ADMIN}/api-tokens"


@app.command()
@explained
def create(
    scopes: Annotated[list[Role], typer.Option("--scope", help="A role of yours that it has; again for more.")],
    note: Annotated[str, typer.Option("--note", help="What it is for.")],
    days: Annotated[int, typer.Option("--days", min=1, max=MAX_TOKEN_LIFE.days, help="For how long.")] = 90,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. Standard output has its secret, once: send it into a file, or into a masked variable."""
    bridge = connect(load_client(server))
    body = {"scopes": [scope.value for scope in scopes], "days": days, "note": note}
    # Never asked again by itself: the bridge keeps no secret that it could answer twice.
    answer = bridge.post(PATH, body)
    token, secret = bridge.read(ShownToken, answer.get("token")), bridge.read(str, answer.get("secret"))
    if as_json:
        print_json(answer)
        return
    typer.echo(safe(secret))
    typer.echo(f"made {_what(token)}", err=True)
    typer.echo(f"Next, when nobody needs it any more: ci-bridge api-token revoke {safe(token.token_id)}", err=True)


@app.command("list")
@explained
def listed(server: Server = None, as_json: AsJson = False) -> None:
    """Show your tokens; operators and auditors see everybody's."""
    bridge = connect(load_client(server))
    document: Any = bridge.get(PATH).get("tokens")
    found = bridge.read(list[ShownToken], document)
    if as_json:
        print_json(document)
        return
    for one in found:
        typer.echo(_what(one))
    if not found:
        typer.echo("There is no token.")


@app.command()
@explained
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As 'ci-bridge api-token list' shows it.")],
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """End a token, now."""
    bridge = connect(load_client(server))
    document = bridge.change("DELETE", f"{PATH}/{id_in_path(token_id)}", {}).get("token")
    found = bridge.read(ShownToken, document)
    if as_json:
        print_json(document)
        return
    typer.echo(f"revoked {_what(found)}")


def _what(one: ShownToken) -> str:
    used = f", used {one.last_used_at:%Y-%m-%d %H:00}" if one.last_used_at else ", never used"
    ended = f", revoked {one.revoked_at:%Y-%m-%d %H:%M} by {safe(one.revoked_by)}" if one.revoked_at else ""
    return (
        f"{safe(one.token_id)}  {safe(one.principal)}  {safe(', '.join(one.scopes))}  "
        f"until {one.expires_at:%Y-%m-%d}{used}{ended}: {safe(one.note)}"
    )
