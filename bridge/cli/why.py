"""``ci-bridge policy why``: why a real job was let in or refused, by the reference in its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from bridge.cli.audit import AsJson
from bridge.cli.output import explained, print_json, safe
from bridge.cli.remote import Server, connect, id_in_path
from bridge.settings import load_client

app = typer.Typer()

_MARKS = {True: "yes", False: "no ", None: "?  "}


@app.command()
@explained
def why(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="As the job's log shows it.")],
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say why a job was let in or refused, by its reference; for everybody with a role."""
    document = connect(load_client(server)).get(f"/v1/admin/decisions/{id_in_path(reference)}")
    if as_json:
        print_json(document)
        return
    for line in _lines(document):
        typer.echo(line)


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    decided, told = document.get("decision"), document.get("explanation")
    if decided is not None:
        who = f"user {decided['user_id']} of {safe(decided['issuer'])}, job {decided['job_id']}"
        yield f"{safe(decided['code'] or decided['decision'])}: {who}, as {safe(decided['account'] or 'nobody')}"
    if told is None:
        yield "No question was put to the policy: the refusal came before, and its code says why."
        return
    yield f"By the policy in force now: {safe(told['title'])} [{safe(told['decision'])}]"
    for rule in (*told["forbids"], *told["permits"]):
        yield f"{safe(rule['policy_id'])} ({safe(rule['file'])}:{rule['line']}) {safe(rule['effect'])}"
        for one in rule["conditions"]:
            yield f"    {_MARKS[one['holds']]} {safe(one['text'])}"
    for excess in told["limits"]:
        yield f"limit {safe(excess.get('limit'))}: {safe(excess.get('sentence'))}"
