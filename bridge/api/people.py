"""Who the bridge takes somebody for: a first thing to ask when something is refused."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bridge.api.callers import Person

router = APIRouter(prefix="/v1")


@router.get("/me")
async def me(person: Person) -> dict[str, Any]:
    """Return the caller's principal, account (or null) and roles."""
    return dict(await person.ask("whoami"))
