"""Links of GitLab users and accounts, as administrators make and end them. Linking oneself needs a browser: ``web``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from bridge.api.callers import Person
from bridge.api.cross_site import from_own_client
from bridge.api.idempotency import Key, keyed
from bridge.api.values import AccountName, Number, Reference, Strict, Text, Url

router = APIRouter(prefix="/v1/links")

CHANGES = [Depends(from_own_client)]


class Proposal(Strict):
    """An administrator's proposal."""

    issuer: Url
    user_id: Number
    account: AccountName
    reason: Text


class Reason(Strict):
    """Why, for the record."""

    reason: Text


@router.get("")
async def links(person: Person) -> dict[str, Any]:
    """Return the links that the caller may see: all with any role, else those of their own account."""
    return dict(await person.ask("links"))


@router.post("", status_code=201, dependencies=CHANGES)
async def propose(body: Proposal, person: Person, key: Key) -> dict[str, Any]:
    """Propose a link; it counts once another administrator has approved it."""
    return dict(await person.ask("link_propose", **body.model_dump(), **keyed(key)))


@router.post("/{link_id}/approve", dependencies=CHANGES)
async def approve(link_id: Reference, body: Reason, person: Person) -> dict[str, Any]:
    """Approve what somebody else proposed."""
    return dict(await person.ask("link_decide", link_id=link_id, approve=True, reason=body.reason))


@router.post("/{link_id}/reject", dependencies=CHANGES)
async def reject(link_id: Reference, body: Reason, person: Person) -> dict[str, Any]:
    """Reject what was proposed."""
    return dict(await person.ask("link_decide", link_id=link_id, approve=False, reason=body.reason))


@router.post("/{link_id}/end", dependencies=CHANGES)
async def end(link_id: Reference, body: Reason, person: Person) -> dict[str, Any]:
    """End a link: one's own account's, or any as an operator."""
    return dict(await person.ask("link_end", link_id=link_id, reason=body.reason))
