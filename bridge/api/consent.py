"""What the owner of an account says about who may act as it."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Depends

from bridge.api.callers import Person
from bridge.api.cross_site import from_own_client
from bridge.api.values import Number, Strict, Url

router = APIRouter(prefix="/v1/consent")

Act = Literal["allow", "deny", "only-listed", "stop", "resume", "unlist"]
"""The values of ``people.consenting.ConsentAct``."""


class Change(Strict):
    """One thing that an owner says; ``allow`` and ``deny`` name a project by both its members."""

    act: Act
    issuer: Url | None = None
    project_id: Number | None = None


@router.get("")
async def show(person: Person) -> dict[str, Any]:
    """Return how the caller's own account stands."""
    return dict(await person.ask("consent_show"))


@router.post("", dependencies=[Depends(from_own_client)])
async def change(body: Change, person: Person) -> dict[str, Any]:
    """Take down what the owner says."""
    return dict(await person.ask("consent_change", **body.model_dump()))
