"""What a compute node asks, as itself, when a job of ours starts or ends there (HTTP Negotiate, RFC 4559)."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from bridge.api.guards import guard
from bridge.api.threads import Waiting
from bridge.errors import TokenRefused
from bridge.runs.nodes import NodeDesk, NodeJob

router = APIRouter(prefix="/v1/node")


class NodeRequest(BaseModel):
    """A Slurm job as its prolog or epilog knows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    slurm_job_id: int = Field(gt=0, lt=2**32)
    uid: int = Field(gt=0, lt=2**32)
    node: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,252}$")
    """The node's name as Slurm has it (SLURMD_NODENAME)."""

    def job(self) -> NodeJob:
        """Return it as the value that the desk takes."""
        return NodeJob(self.slurm_job_id, self.uid, self.node)


async def desk(request: Request) -> NodeDesk:
    """Return the desk that the composition root made."""
    found: NodeDesk = request.app.state.nodes
    return found


@guard
async def negotiate_token(authorization: Annotated[str, Header(max_length=32 * 1024)] = "") -> str:
    """Return the base64 token of ``Authorization: Negotiate``; raises TokenRefused ``negotiate.required``."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "negotiate" or not token:
        raise TokenRefused(
            "negotiate.required",
            "This address answers hosts that authenticate with their keytab.",
            "Call it with HTTP Negotiate, as ci-bridge-node does.",
        )
    return token


Token = Annotated[str, Depends(negotiate_token)]
Desk = Annotated[NodeDesk, Depends(desk)]


@router.post("/tickets")
async def tickets(body: NodeRequest, token: Token, node_desk: Desk, waiting: Waiting) -> Response:
    """Return the ticket bundle of a job that runs on the calling node now."""
    delivery = await to_thread.run_sync(node_desk.tickets, body.job(), token, limiter=waiting.nodes)
    headers = {"WWW-Authenticate": f"Negotiate {delivery.reply_token}", "X-CI-Bridge-Cache": delivery.cache}
    return Response(delivery.ccache, media_type="application/octet-stream", headers=headers)


@router.post("/released", status_code=204)
async def released(body: NodeRequest, token: Token, node_desk: Desk, waiting: Waiting) -> Response:
    """Take down that the node has removed the job's tickets."""
    reply = await to_thread.run_sync(node_desk.released, body.job(), token, limiter=waiting.nodes)
    return Response(status_code=204, headers={"WWW-Authenticate": f"Negotiate {reply}"})
