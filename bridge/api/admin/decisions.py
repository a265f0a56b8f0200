"""Decisions: those on record, why one came out as it did, and how a made-up job would be answered now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime, BaseModel, Field

from bridge.api.admin import advice
from bridge.api.admin.entry import CHANGES, PREFIX, Reader, reading
from bridge.api.admin.runs import Event, event_of
from bridge.api.callers import Person
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit, Page
from bridge.api.values import MAX_NUMBER, AccountName, Number, Reference, Url
from bridge.audit.ledger import View
from bridge.audit.log import Entry
from bridge.errors import NotFound
from bridge.listing import EntryFilter
from bridge.policy.cases import WEDNESDAY, Situation

router = APIRouter(prefix=f"{PREFIX}/decisions", tags=["decisions"])

WINDOW: Final = 20_000
"""Entries of the log that one page looks at, at most: what is asked for is in the records, and no index has it."""

DECIDED: Final = {"intent": "allowed", "denied": "denied"}
"""Phases of an admission's record in which its decision is told."""


class Decision(BaseModel):
    """May a job run as a person: what was said."""

    seq: int
    """Of the audit record."""
    at: datetime
    reference: str
    decision: Literal["allowed", "denied"]
    code: str | None
    """Of a refusal."""
    run_id: str | None
    issuer: str | None
    user_id: int | None
    project_id: int | None
    job_id: int | None
    account: str | None
    cluster: str | None
    bundle_hash: str | None
    request_sha256: str | None
    """Of the question to policy; null where no account was found to ask about."""
    policy_ids: list[str]


class Condition(BaseModel):
    """One condition of a policy, and how it came out."""

    text: str
    holds: bool | None
    values: dict[str, Any]


class Rule(BaseModel):
    """A policy and its conditions for this job."""

    policy_id: str
    effect: Literal["permit", "forbid"]
    file: str
    line: int
    limits: list[str]
    reason: str | None
    conditions: list[Condition]


class Explanation(BaseModel):
    """Why a job is answered as it is."""

    decision: str
    """``allowed``, or the code of the refusal."""
    title: str
    remedy: str
    account: str | None
    bundle_hash: str
    forbids: list[Rule]
    permits: list[Rule]
    limits: list[dict[str, Any]]
    safe: list[str]
    """What the job's log may show."""


class OneDecision(BaseModel):
    """A decision with all records of its reference."""

    decision: Decision | None
    events: list[Event]
    explanation: Explanation | None
    """By the bundle in force now; null where the log has no more than the refusal."""


class MadeUp(Situation):
    """A job that nobody ran, as in ``cases/*.toml``; all that is left out is an ordinary push."""

    at: Annotated[AwareDatetime, Field(strict=False)] = WEDNESDAY
    """Left out, it is now."""


@router.get("", response_model=Page[Decision], operation_id="list_decisions")
async def listed(
    member: Reader,
    decision: Literal["allowed", "denied"] | None = None,
    account: Annotated[AccountName | None, Query()] = None,
    issuer: Annotated[Url | None, Query()] = None,
    user_id: Annotated[Number | None, Query()] = None,
    project_id: Annotated[Number | None, Query()] = None,
    code: Annotated[str | None, Query(max_length=64)] = None,
    since: AwareDatetime | None = None,
    cursor: Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description=CURSOR)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """List decisions of admission, newest first. A page may be short where there is a next one.

    For everybody with a role.
    """
    asked = {
        "decision": decision,
        "account": account,
        "issuer": issuer,
        "user_id": user_id,
        "project_id": project_id,
        "code": code,
    }
    wanted = {name: value for name, value in asked.items() if value is not None}

    def fits(one: dict[str, Any]) -> bool:
        return all(one[name] == value for name, value in wanted.items())

    return await member.read(lambda view: _page(view, fits, since, cursor, limit))


@router.get("/{reference}", response_model=OneDecision, operation_id="get_decision")
async def one(reference: Annotated[Reference, Path()], person: Person, request: Request) -> Any:
    """Return all that is on record under a reference, and why it is so where that can be told."""
    known = await advice.found(person)
    entries = await reading(person, lambda view: view.timeline(reference=reference))
    if not entries:
        raise NotFound("decision.unknown", "Nothing is on record under this reference.", "Check its twelve letters.")
    decided = next(_decisions(entries), None)
    explanation = None
    kept = await reading(person, lambda view: view.decision(reference))
    if decided is not None and kept is not None:
        sha256 = decided["request_sha256"]
        explanation = await advice.worked_out(request, lambda: advice.explained_decision(known.active, kept, sha256))
    return {"decision": decided, "events": [event_of(entry) for entry in entries], "explanation": explanation}


@router.post("", response_model=Explanation, operation_id="try_decision", dependencies=CHANGES)
async def dry_run(body: MadeUp, person: Person, request: Request) -> Any:
    """Say how the bundle in force would answer a made-up job, and why. Nothing comes of it."""
    case: Situation = body if "at" in body.model_fields_set else body.model_copy(update={"at": datetime.now(UTC)})
    known = await advice.found(person)
    return await advice.worked_out(request, lambda: advice.explained(known.active, case))


def _page(
    view: View, fits: Callable[[dict[str, Any]], bool], since: datetime | None, cursor: int | None, limit: int
) -> dict[str, Any]:
    last = (view.head().tree.size if cursor is None else cursor) - 1
    end = 0 if since is None else view.first_seq_since(since)
    first = max(end, last - WINDOW + 1)
    found: list[dict[str, Any]] = []
    for decided in _decisions(view.find_entries(EntryFilter(type="admission"), first, last, WINDOW, newest=True)):
        if fits(decided):
            found.append(decided)
        if len(found) == limit:
            return {"items": found, "next_cursor": str(decided["seq"]) if decided["seq"] > end else None}
    return {"items": found, "next_cursor": str(first) if first > end else None}


def _decisions(entries: Any) -> Iterator[dict[str, Any]]:
    return (_decision(entry) for entry in entries if entry.index.type == "admission" and entry.index.phase in DECIDED)


def _decision(entry: Entry) -> dict[str, Any]:
    leaf = json.loads(entry.leaf)
    actor, target, basis = (leaf.get(name, {}) for name in ("actor", "target", "basis"))
    return {
        "seq": entry.seq,
        "at": datetime.fromtimestamp(entry.index.ts / 1000, UTC),
        "reference": entry.index.reference,
        "decision": DECIDED[entry.index.phase],
        "code": leaf.get("code"),
        "run_id": entry.index.run_id,
        **{name: actor.get(name) for name in ("issuer", "user_id", "project_id", "job_id")},
        "account": target.get("account"),
        "cluster": target.get("cluster"),
        "bundle_hash": basis.get("bundle_hash"),
        "request_sha256": leaf.get("request_sha256"),
        "policy_ids": basis.get("policy_ids", []),
    }
