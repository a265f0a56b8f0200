"""Runs: listed, shown with all that is on record of them, their log's end, and cancelled by operators."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AwareDatetime, BaseModel

from bridge.api.admin.entry import CHANGES, PREFIX, Operator, Reader
from bridge.api.callers import Person
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit, Page, moment_of, moment_text, page
from bridge.api.values import AccountName, Number, Strict, Text, Url
from bridge.audit.ledger import View
from bridge.audit.log import Entry
from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import NotFound
from bridge.listing import Cancel, RunFilter, RunRow
from bridge.model import Run, RunId, RunState, SlurmPlan, Stage
from bridge.references import new_reference
from bridge.runs.live import Runs

router = APIRouter(prefix=f"{PREFIX}/runs", tags=["runs"])

RunIdPath = Annotated[str, Path(pattern=r"^[a-z0-9]{26}$")]
RunCursor = Annotated[str | None, Query(pattern=r"^[0-9]{16}-[a-z0-9]{26}$", description=CURSOR)]
ClusterName = Annotated[str, Query(max_length=64)]


class Event(BaseModel):
    """A record of a run, less what only auditors read."""

    seq: int
    at: datetime
    type: str
    phase: str
    reference: str
    stage: str | None = None
    code: str | None = None
    slurm_job_id: int | None = None
    exit_code: int | None = None
    node: str | None = None
    act: str | None = None


class GrantSummary(BaseModel):
    """What policy decided."""

    project_path: str | None
    ref: str
    ref_protected: bool
    pipeline_id: int
    pipeline_source: str
    evidence: str
    plan: SlurmPlan
    limits: tuple[str, ...]
    policy_ids: tuple[str, ...]
    bundle_hash: str
    reason: str
    link_id: str | None


class RunDetail(BaseModel):
    """All of a run."""

    run: RunRow
    grant: GrantSummary
    stages: list[Stage]
    timeline: list[Event]
    cancel: Cancel | None
    """An operator's word that it must end."""


class OneCancel(BaseModel):
    """The word that counts: the first."""

    cancel: Cancel


class Reason(Strict):
    """Why, for the record."""

    reason: Text


@router.get("", response_model=Page[RunRow], operation_id="list_runs")
async def listed(
    member: Reader,
    state: RunState | None = None,
    account: Annotated[AccountName | None, Query()] = None,
    cluster: ClusterName | None = None,
    issuer: Annotated[Url | None, Query()] = None,
    user_id: Annotated[Number | None, Query()] = None,
    project_id: Annotated[Number | None, Query()] = None,
    since: AwareDatetime | None = None,
    cursor: RunCursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """List runs, newest first. For everybody with a role."""
    wanted = RunFilter(state, account, cluster, issuer, user_id, project_id, since)
    found = await member.read(lambda view: view.list_runs(wanted, _before(cursor), limit + 1))
    return page(found, limit, lambda one: f"{moment_text(one.created_at)}-{one.run_id}")


@router.get("/{run_id}", response_model=RunDetail, operation_id="get_run")
async def one(run_id: RunIdPath, member: Reader) -> Any:
    """Return a run with its grant, stages and timeline. For everybody with a role."""
    return await member.read(lambda view: _detail(view, RunId(run_id)))


@router.get(
    "/{run_id}/log",
    operation_id="get_run_log",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The last bytes of the log."}},
)
async def log(run_id: RunIdPath, member: Operator, request: Request) -> Response:
    """Return the end of a live run's log, at most 64 KiB, as it came from the cluster: GitLab's masking is not applied.

    Role operator; each look is on record. Only the web process that holds the run has it.
    """
    runs: Runs = request.app.state.runs
    live = next((one for one in runs.held() if one.run.run_id == run_id), None)
    if live is None:
        raise NotFound(
            "run.log_elsewhere",
            "This web process does not hold the run, or the run has ended.",
            "Read the job's log in GitLab, or ask the other web processes.",
        )
    record = _look(live.run, member.principal)
    await to_thread.run_sync(_put_on_record, member, record, limiter=member.person.counter.seats)
    tail = live.log_tail()
    headers = {name: value for name, value in member.person.response.headers.items() if name != "content-length"}
    return Response(tail, media_type="application/octet-stream", headers=headers)


@router.post(
    "/{run_id}/cancel", status_code=202, response_model=OneCancel, operation_id="cancel_run", dependencies=CHANGES
)
async def cancel(run_id: RunIdPath, body: Reason, person: Person) -> Any:
    """Have a run ended on every web process that holds it; again is harmless. Role operator."""
    return await person.ask("run_cancel", run_id=run_id, reason=body.reason)


def _before(cursor: str | None) -> tuple[datetime, RunId] | None:
    if cursor is None:
        return None
    moment, _, run_id = cursor.partition("-")
    return moment_of(moment), RunId(run_id)


def _detail(view: View, run_id: RunId) -> dict[str, Any]:
    run = view.run(run_id)
    cancels = view.cancels(run_id)
    return {
        "run": _row(run),
        "grant": _grant(run),
        "stages": view.stages(run_id),
        "timeline": [event_of(entry) for entry in view.timeline(run_id=run_id)],
        "cancel": cancels[0] if cancels else None,
    }


def _row(run: Run) -> RunRow:
    who, account = run.grant.identity, run.grant.account
    return RunRow(
        run_id=run.run_id,
        issuer=who.issuer,
        job_id=who.job_id,
        user_id=who.user_id,
        project_id=who.project_id,
        runner_id=who.runner_id,
        cluster=run.grant.cluster.name,
        account=account.name,
        uid=account.uid,
        state=run.state,
        attempt=run.attempt,
        created_at=run.created_at,
        not_after=run.not_after,
    )


def _grant(run: Run) -> dict[str, Any]:
    who, grant = run.grant.identity, run.grant
    return {
        **{name: getattr(who, name) for name in ("project_path", "ref", "ref_protected", "pipeline_id")},
        "pipeline_source": who.pipeline_source,
        "evidence": who.evidence.value,
        "plan": asdict(grant.plan),
        "limits": grant.limits.names,
        **{name: getattr(grant, name) for name in ("policy_ids", "bundle_hash", "reason", "link_id")},
    }


def event_of(entry: Entry) -> dict[str, Any]:
    """Return what everybody with a role may read of an entry."""
    leaf = json.loads(entry.leaf)
    return {
        "seq": entry.seq,
        "at": datetime.fromtimestamp(entry.index.ts / 1000, UTC),
        **{name: leaf.get(name) for name in ("type", "phase", "reference", "stage", "code", "slurm_job_id")},
        "exit_code": leaf.get("exit_code"),
        "node": leaf.get("target", {}).get("node"),
        "act": leaf.get("detail", {}).get("act"),
    }


def _look(run: Run, principal: str) -> Record:
    return Record(
        type=RecordType.RUN,
        phase=Phase.EVENT,
        reference=new_reference(),
        run_id=run.run_id,
        detail={"act": "log_read", "by": principal},
    )


def _put_on_record(member: Operator, record: Record) -> None:
    with member.person.counter.ledger.begin() as tx:
        tx.append(record)
