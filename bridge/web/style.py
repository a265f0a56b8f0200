"""The pages' one style sheet; a route for a fixed file, and no directory that is served (T38)."""

from __future__ import annotations

from importlib import resources
from typing import Final

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from bridge import web
from bridge.api.guards import everybody

router = APIRouter(prefix="/assets")

_STYLE: Final = resources.files(web).joinpath("assets/page.css").read_bytes()


@router.get("/page.css", dependencies=[Depends(everybody)])
async def style() -> Response:
    """Return the style sheet, which says nothing about anybody."""
    return Response(_STYLE, media_type="text/css", headers={"Cache-Control": "public, max-age=600"})
