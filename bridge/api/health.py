"""Whether the web process is alive, and whether it can do its work now. Public: says nothing else."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Depends, Request

from bridge.api.guards import everybody
from bridge.api.threads import Waiting
from bridge.runs.live import Runs

router = APIRouter(prefix="/health", dependencies=[Depends(everybody)])


@router.get("/live")
async def live() -> dict[str, str]:
    """Answer as long as the process can; in no thread, since whoever asks may end a process that has none left."""
    return {"status": "live"}


@router.get("/ready")
async def ready(request: Request, waiting: Waiting) -> dict[str, str]:
    """Answer 200 where the broker and the database answer too; otherwise the problem says which does not."""
    registry: Runs = request.app.state.runs
    await to_thread.run_sync(registry.check_ready, limiter=waiting.probes)
    return {"status": "ready"}
