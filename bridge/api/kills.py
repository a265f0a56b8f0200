"""Kill switches: thrown, lifted, and seen by everybody who has a role."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, Query

from bridge.api.callers import Counter, Person
from bridge.api.cross_site import from_own_client
from bridge.api.idempotency import Key, keyed
from bridge.api.values import AccountName, Number, Reference, Strict, Text, Url
from bridge.broker.people_desk import plain
from bridge.errors import PolicyRefused

router = APIRouter(prefix="/v1/kills")

CHANGES = [Depends(from_own_client)]

Scope = Literal["user", "account", "project", "runner", "issuer", "all"]
"""The values of ``model.KillScope``."""


class Switch(Strict):
    """A switch to throw; what its scope needs is given, the rest is null."""

    scope: Scope
    reason: Text
    issuer: Url | None = None
    number: Number | None = None
    account: AccountName | None = None


class Reason(Strict):
    """Why, for the record."""

    reason: Text


@router.get("")
async def kills(person: Person, lifted: Annotated[Literal["true", "false"], Query()] = "false") -> dict[str, Any]:
    """Return the switches in force, oldest first; with ``lifted=true`` those that were lifted too.

    They are read from the tables, unlike what the broker goes by; nobody decides by this answer.
    """
    caller = await person.ask("whoami")
    if not caller["roles"]:
        raise PolicyRefused(
            "caller.role",
            "This needs a role, and you have none.",
            "Ask the policy's authors to give you one in roles.toml.",
            principal=caller["principal"],
        )
    counter = person.counter
    return {"switches": await to_thread.run_sync(_switches, counter, lifted == "true", limiter=counter.seats)}


@router.post("", status_code=201, dependencies=CHANGES)
async def throw(body: Switch, person: Person, key: Key) -> dict[str, Any]:
    """Put a switch in force; ``new`` is false where an older one stops just the same."""
    return dict(await person.ask("kill_throw", **body.model_dump(), **keyed(key)))


@router.post("/{switch_id}/lift", dependencies=CHANGES)
async def lift(switch_id: Reference, body: Reason, person: Person) -> dict[str, Any]:
    """Lift a switch, so that what it stopped can go on."""
    return dict(await person.ask("kill_lift", switch_id=switch_id, reason=body.reason))


def _switches(counter: Counter, all_of_them: bool) -> Any:  # noqa: FBT001 - handed to a thread
    with counter.ledger.read() as view:
        return plain(view.kill_switches(active=not all_of_them))
