"""Proposals of policy bundles: written, submitted, approved by somebody else, activated. The broker checks all."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from bridge.api.admin.entry import CHANGES, PREFIX
from bridge.api.callers import Person
from bridge.api.etags import Version, etag
from bridge.api.idempotency import Key, keyed
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit, Page
from bridge.api.values import Reference, Strict
from bridge.proposals import Activation, Proposal, ProposalState

router = APIRouter(prefix=f"{PREFIX}/proposals", tags=["proposals"])

Files = Annotated[dict[str, str], Field(max_length=200, description="The text of each file by its path.")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="Hex SHA-256 of a bundle's content.")]
Words = Annotated[str, Field(min_length=1, max_length=500)]
ProposalId = Annotated[Reference, Path()]


class NewProposal(Strict):
    """A bundle that somebody wants in force."""

    title: Words
    files: Files
    base_hash: Hash | None = None
    """The bundle that the author began with; left out, it is the one in force."""


class Content(Strict):
    """New content of a proposal."""

    files: Files
    base_hash: Hash | None = None


class Submission(Strict):
    """Names the bundle in force, where another came into force since the proposal was written."""

    base_hash: Hash | None = None


class Decision(Strict):
    """What an approver decides, about the content that they have read."""

    content_hash: Hash
    reason: Words


class Reason(Strict):
    """Why, for the record."""

    reason: Words


class Nothing(Strict):
    """An empty object."""


class OneProposal(BaseModel):
    """A proposal as it stands now."""

    proposal: Proposal


class ProposalWithFiles(OneProposal):
    """A proposal with its bundle."""

    files: dict[str, str]


class OneActivation(BaseModel):
    """What came into force, or what an operator asked to come into force."""

    activation: Activation


@router.get("", response_model=Page[Proposal], operation_id="list_proposals")
async def listed(
    person: Person,
    state: ProposalState | None = None,
    author: Annotated[str | None, Query(max_length=256)] = None,
    cursor: Annotated[Reference | None, Query(description=CURSOR)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> dict[str, Any]:
    """List proposals, newest first. For everybody with a role."""
    found = list((await person.ask("policy_proposals"))["proposals"])
    if cursor is not None:
        places = [place for place, one in enumerate(found) if one["proposal_id"] == cursor]
        found = found[places[0] + 1 :] if places else []
    wanted = [one for one in found if state in (None, one["state"]) and author in (None, one["author"])]
    items = wanted[:limit]
    return {"items": items, "next_cursor": items[-1]["proposal_id"] if len(wanted) > limit else None}


@router.get("/{proposal_id}", response_model=ProposalWithFiles, operation_id="get_proposal")
async def one(proposal_id: ProposalId, person: Person, response: Response) -> Any:
    """Return a proposal, its files, and as ETag the version that a change must name. For everybody with a role."""
    return _tagged(response, await person.ask("policy_proposals", proposal_id=proposal_id))


@router.post("", status_code=201, response_model=OneProposal, operation_id="create_proposal", dependencies=CHANGES)
async def create(body: NewProposal, person: Person, key: Key, response: Response) -> Any:
    """Keep a draft; the files need not make a good bundle yet. Role author."""
    answer = await person.ask(
        "policy_propose",
        data=packed(body.files),
        title=body.title,
        base_hash=body.base_hash,
        **keyed(key),
    )
    response.headers["Location"] = f"{PREFIX}/proposals/{answer['proposal']['proposal_id']}"
    return _tagged(response, answer)


@router.put("/{proposal_id}", response_model=OneProposal, operation_id="rewrite_proposal", dependencies=CHANGES)
async def rewrite(proposal_id: ProposalId, body: Content, person: Person, version: Version, response: Response) -> Any:
    """Put new content into one's own proposal; it is a draft then, and approvals of the old content are gone."""
    answer = await person.ask(
        "policy_rewrite",
        data=packed(body.files),
        proposal_id=proposal_id,
        version=version,
        base_hash=body.base_hash,
    )
    return _tagged(response, answer)


@router.post("/{proposal_id}/submit", response_model=OneProposal, operation_id="submit_proposal", dependencies=CHANGES)
async def submit(
    proposal_id: ProposalId, body: Submission, person: Person, version: Version, response: Response
) -> Any:
    """Put one's own proposal before the approvers: a bundle that loads, whose cases come out as written."""
    answer = await person.ask("policy_submit", proposal_id=proposal_id, version=version, base_hash=body.base_hash)
    return _tagged(response, answer)


@router.post(
    "/{proposal_id}/approve", response_model=OneProposal, operation_id="approve_proposal", dependencies=CHANGES
)
async def approve(proposal_id: ProposalId, body: Decision, person: Person, version: Version, response: Response) -> Any:
    """Approve what somebody else submitted. Role approver, as a person, and never the author."""
    return await _decided("approve", proposal_id, body, version, person, response)


@router.post("/{proposal_id}/reject", response_model=OneProposal, operation_id="reject_proposal", dependencies=CHANGES)
async def reject(proposal_id: ProposalId, body: Decision, person: Person, version: Version, response: Response) -> Any:
    """Reject what somebody else submitted. Role approver, as a person, and never the author."""
    return await _decided("reject", proposal_id, body, version, person, response)


@router.post(
    "/{proposal_id}/withdraw", response_model=OneProposal, operation_id="withdraw_proposal", dependencies=CHANGES
)
async def withdraw(proposal_id: ProposalId, body: Nothing, person: Person, version: Version, response: Response) -> Any:
    """Take one's own proposal back. Role author."""
    return _tagged(response, await person.ask("policy_withdraw", proposal_id=proposal_id, version=version))


@router.post(
    "/{proposal_id}/activate", response_model=OneActivation, operation_id="activate_proposal", dependencies=CHANGES
)
async def activate(proposal_id: ProposalId, body: Reason, person: Person, version: Version) -> Any:
    """Put an approved proposal in force, on every replica and at once. Role approver or operator, as a person."""
    return await person.ask("policy_activate", proposal_id=proposal_id, version=version, reason=body.reason)


async def _decided(
    word: Literal["approve", "reject"],
    proposal_id: str,
    body: Decision,
    version: int,
    person: Person,
    response: Response,
) -> Any:
    answer = await person.ask(
        "policy_decide",
        proposal_id=proposal_id,
        version=version,
        content_hash=body.content_hash,
        approve=word == "approve",
        reason=body.reason,
    )
    return _tagged(response, answer)


def packed(files: dict[str, str]) -> bytes:
    """Return the files as the broker takes them."""
    return json.dumps(files, ensure_ascii=False).encode("utf-8", errors="surrogatepass")


def _tagged(response: Response, answer: Any) -> Any:
    response.headers["ETag"] = etag(answer["proposal"]["version"])
    return answer
