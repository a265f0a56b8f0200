"""What GitLab Runner's executor asks: admit a job, run its stages, follow them, end it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from bridge.api.guards import everybody, guard
from bridge.api.threads import Waiting
from bridge.errors import RequestRefused, TokenRefused
from bridge.model import Evidence, JobFacts, RunId, UnverifiedToken
from bridge.runs.live import Runs
from bridge.runs.live_run import LiveRun
from runner import wire

WAIT_SECONDS: Final = 20
"""How long an empty event stream is held open: under every proxy's usual idle limit."""

PRINTABLE: Final = r"^[\x21-\x7e]*$"
"""Tokens are ASCII; anything else would grow over what the broker's socket takes."""

RunIdPath = Annotated[str, Path(pattern=r"^[a-z0-9]{26}$")]
Invocation = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]

router = APIRouter(prefix="/v1")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Facts(_Strict):
    """``JobFacts`` as the executor sends them."""

    job_id: int = Field(gt=0)
    project_id: int = Field(gt=0)
    pipeline_id: int = Field(gt=0)
    user_id: int | None = Field(gt=0)
    ref: str = Field(max_length=1024)
    sha: str = Field(max_length=64)
    job_name: str = Field(max_length=1024)
    stage: str = Field(max_length=1024)
    project_path: str = Field(max_length=2048)
    timeout_seconds: int = Field(gt=0, le=31 * 24 * 3600)
    server_url: str | None = Field(default=None, max_length=1024)


class AdmissionRequest(_Strict):
    """The evidence of a job."""

    id_token: str | None = Field(max_length=32 * 1024, pattern=PRINTABLE, repr=False)
    job_token: str = Field(max_length=32 * 1024, pattern=PRINTABLE, repr=False)
    facts: Facts
    scheduler_parameters: str = Field(default="", max_length=16 * 1024)
    cluster: str | None = Field(default=None, max_length=64)

    def evidence(self) -> Evidence:
        """Return it as the value that the rooms below take."""
        return Evidence(
            id_token=None if self.id_token is None else UnverifiedToken(self.id_token),
            job_token=self.job_token,
            facts=JobFacts(**self.facts.model_dump()),
            scheduler_parameters=self.scheduler_parameters,
            cluster=self.cluster,
        )


async def runs(request: Request) -> Runs:
    """Return the live runs that the composition root made."""
    found: Runs = request.app.state.runs
    return found


@guard
def live_run(
    run_id: RunIdPath,
    registry: Annotated[Runs, Depends(runs)],
    authorization: Annotated[str, Header(max_length=256)] = "",
    x_ci_bridge_job_token: Annotated[str | None, Header(max_length=4096, pattern=PRINTABLE)] = None,
) -> LiveRun:
    """Return the run whose session secret the caller presents; one answer for every other case (T50)."""
    scheme, _, secret = authorization.partition(" ")
    if scheme != "Bearer" or not secret:
        raise TokenRefused(
            "session.invalid",
            "The session secret is not that of a live run.",
            "Retry the job in GitLab: a new job gets a new run.",
        )
    live = registry.authenticate(RunId(run_id), secret)
    live.job_token = live.job_token or x_ci_bridge_job_token or None
    return live


Live = Annotated[LiveRun, Depends(live_run)]
Registry = Annotated[Runs, Depends(runs)]


# For everybody: the evidence in the body is what admission judges.
@router.post("/runs", status_code=201, dependencies=[Depends(everybody)])
async def open_run(body: AdmissionRequest, registry: Registry, waiting: Waiting) -> dict[str, Any]:
    """Admit a job: verify, decide, record, impersonate; answers with the run and its session secret."""
    return await to_thread.run_sync(registry.open, body.evidence(), limiter=waiting.admissions)


@router.put("/runs/{run_id}/stages/{invocation}", status_code=202)
async def start_stage(
    request: Request,
    invocation: Invocation,
    live: Live,
    registry: Registry,
    stage: Annotated[str, Query(max_length=80)],
) -> dict[str, str]:
    """Start a stage with the script in the body; the same call again is harmless."""
    if stage != "prepare" and not wire.is_stage(stage):
        raise RequestRefused(
            "stage.unknown",
            "GitLab Runner called a stage that this executor does not know.",
            "Check that runner and bridge are of versions that go together.",
        )
    task = await run_in_threadpool(registry.start_stage, live, invocation, stage, await request.body())
    return {"stage": stage, "kind": task.kind.value}


@router.get("/runs/{run_id}/stages/{invocation}/events")
async def events(
    invocation: Invocation,
    live: Live,
    registry: Registry,
    after: Annotated[int, Query(ge=0)],
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """Return frames numbered over ``after``, waiting for the first; those up to ``after`` may be forgotten.

    ``offset`` is how many bytes of log the executor has: where a stage is taken up again after our restart.
    """
    task = await run_in_threadpool(registry.stage, live, invocation, after, offset)
    body = await task.feed.wait(after, WAIT_SECONDS)
    return Response(body, media_type="application/octet-stream")


@router.post("/runs/{run_id}/stages/{invocation}/cancel", status_code=202)
async def cancel(
    invocation: Invocation,
    live: Live,
    registry: Registry,
    waiting: Waiting,
    after: Annotated[int, Query(ge=0)] = 0,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, str]:
    """Ask for a stage to be cancelled; its event stream ends once that is confirmed."""
    task = await run_in_threadpool(registry.stage, live, invocation, after, offset)
    await to_thread.run_sync(task.cancel, limiter=waiting.slow)
    return {}


@router.post("/runs/{run_id}/finish")
async def finish(live: Live, registry: Registry, waiting: Waiting) -> dict[str, Any]:
    """End the run: cancel what is alive, destroy tickets and private files; harmless when done before."""
    return await to_thread.run_sync(registry.finish, live, limiter=waiting.slow)
