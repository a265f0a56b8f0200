"""Whether the web process is alive, and whether it can do its work now. Public: says nothing else."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from bridge.api.guards import everybody
from bridge.runs.live import Runs

router = APIRouter(prefix="/health", dependencies=[Depends(everybody)])


@router.get("/live")
def live() -> dict[str, str]:
    """Answer as long as the process can."""
    return {"status": "live"}


@router.get("/ready")
def ready(request: Request) -> dict[str, str]:
    """Answer 200 where the broker and the database answer too; otherwise the problem says which does not."""
    registry: Runs = request.app.state.runs
    registry.check_ready()
    return {"status": "ready"}
