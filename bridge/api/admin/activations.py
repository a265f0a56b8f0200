"""What was in force when, the ways back, and emergencies of two operators. The broker checks each step."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from bridge.api.admin.entry import CHANGES, PREFIX
from bridge.api.admin.proposals import Files, Hash, OneActivation, Words, packed
from bridge.api.callers import Person
from bridge.api.idempotency import Key, keyed
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit
from bridge.api.values import Strict
from bridge.proposals import EMERGENCY_LIFE, Activation

router = APIRouter(prefix=f"{PREFIX}/activations", tags=["activations"])

MAX_MINUTES = int(EMERGENCY_LIFE.total_seconds()) // 60


class RollBack(Strict):
    """Back to a bundle that was approved and in force before."""

    content_hash: Hash
    reason: Words


class Emergency(Strict):
    """A bundle for some time without an approval: one that is kept, by its hash, or its files."""

    minutes: Annotated[int, Field(ge=1, le=MAX_MINUTES)]
    reason: Words
    content_hash: Hash | None = None
    files: Files | None = None


class Confirmation(Strict):
    """The content that the second operator has read."""

    content_hash: Hash


class History(BaseModel):
    """A page of activations, and which of all counts now."""

    items: list[Activation]
    next_cursor: str | None
    in_force: int
    """The number of the one in force; 0 where it is the directory of the settings still."""


@router.get("", response_model=History, operation_id="list_activations")
async def history(
    person: Person,
    cursor: Annotated[int | None, Query(ge=1, le=2**53 - 1, description=CURSOR)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> dict[str, Any]:
    """List every activation, newest first, also those that nobody confirmed. For everybody with a role."""
    answer = await person.ask("policy_history")
    found = [one for one in answer["activations"] if cursor is None or one["number"] < cursor]
    items = found[:limit]
    following = str(items[-1]["number"]) if len(found) > limit else None
    return {"items": items, "next_cursor": following, "in_force": answer["in_force"]}


@router.post(
    "/roll-back", status_code=201, response_model=OneActivation, operation_id="roll_back", dependencies=CHANGES
)
async def roll_back(body: RollBack, person: Person, key: Key) -> Any:
    """Put a bundle in force again that was approved before. Role approver or operator, as a person."""
    return await person.ask("policy_roll_back", content_hash=body.content_hash, reason=body.reason, **keyed(key))


@router.post(
    "/break-glass", status_code=201, response_model=OneActivation, operation_id="break_glass", dependencies=CHANGES
)
async def break_glass(body: Emergency, person: Person, key: Key) -> Any:
    """Ask for a bundle without approval, for at most four hours; another operator confirms. Role operator."""
    data = {} if body.files is None else {"data": packed(body.files)}
    return await person.ask(
        "policy_break_glass",
        minutes=body.minutes,
        reason=body.reason,
        content_hash=body.content_hash,
        **data,
        **keyed(key),
    )


@router.post("/{number}/confirm", response_model=OneActivation, operation_id="confirm_emergency", dependencies=CHANGES)
async def confirm(number: Annotated[int, Path(ge=1, le=2**53 - 1)], body: Confirmation, person: Person) -> Any:
    """Confirm another operator's emergency, having read its bundle. Role operator, as a person."""
    return await person.ask("policy_confirm", number=number, content_hash=body.content_hash)
