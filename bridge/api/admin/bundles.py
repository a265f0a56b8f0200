"""Policy bundles: those that are kept, the one in force, and what each of them means. Files by a hash never change."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from bridge.api.admin import advice
from bridge.api.admin.entry import CHANGES, PREFIX, Reader, reading
from bridge.api.admin.proposals import Files, Hash
from bridge.api.callers import Person
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit, Page, moment_of, moment_text, page
from bridge.api.values import AccountName, Number, Strict, Url
from bridge.listing import BundleRow
from bridge.people.bundling import accepted
from bridge.people.policy_reading import Affected, Standing
from bridge.policy.summary import Summary

router = APIRouter(prefix=f"{PREFIX}/bundles", tags=["bundles"])

HashPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Path(pattern=r"^([0-9a-f]{64}|active)$", description="A bundle's hash, or 'active'.")]
BundleCursor = Annotated[str | None, Query(pattern=r"^[0-9]{16}-[0-9a-f]{64}$", description=CURSOR)]


class Draft(Strict):
    """A bundle that is nowhere kept."""

    files: Files


class Comparison(Draft):
    """A bundle that is nowhere kept, to be compared with one that is."""

    against: Hash | None = None
    """Left out, it is the one in force."""


class PastDraft(Draft):
    """A bundle that is nowhere kept, to be asked about the past."""

    days: Annotated[int, Field(ge=1, le=366)] = 30


class Bundle(BaseModel):
    """A bundle's files."""

    content_hash: str
    files: dict[str, str]


class ActiveBundle(BaseModel):
    """The bundle in force."""

    active: Standing
    files: dict[str, str]


class Finding(BaseModel):
    """Something strange about a bundle that loads."""

    severity: Literal["error", "warning"]
    check: str
    file: str
    line: int | None
    message: str


class Validation(BaseModel):
    """Whether a bundle loads, and what is wrong or strange."""

    ok: bool
    content_hash: str
    problems: list[str]
    findings: list[Finding]


class CaseResult(BaseModel):
    """How a case came out."""

    name: str
    passed: bool
    differences: list[str]


class Trial(BaseModel):
    """How a bundle decides its own cases."""

    ok: bool
    content_hash: str
    cases: list[CaseResult]


class Difference(BaseModel):
    """What one bundle changes over another."""

    old: str
    new: str
    empty: bool
    complete: bool
    shifts: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    lines: list[str]
    """For people; what opens something begins with ``!``."""


class Access(BaseModel):
    """Rows of the access matrix."""

    content_hash: str
    complete: bool
    decisions: int
    people: list[Summary]
    forbids: dict[str, str]
    """Stand above all that the people may do."""


class Turn(BaseModel):
    """A decision that would come out otherwise: another code, or other limits."""

    reference: str
    """Of the decision's records where it was a refusal; the run's id where it was let in."""
    account: str
    user_id: int
    project_id: int
    before: str
    after: str
    differences: list[str]


class Replay(BaseModel):
    """What a bundle would have said to the jobs that were decided."""

    content_hash: str
    asked: int
    complete: bool
    counts: dict[str, int]
    turns: list[Turn]


class Impact(BaseModel):
    """Live runs that a bundle would refuse now."""

    content_hash: str
    runs: list[Affected]


@router.get("", response_model=Page[BundleRow], operation_id="list_bundles")
async def listed(member: Reader, cursor: BundleCursor = None, limit: Limit = DEFAULT_LIMIT) -> Any:
    """List the bundles that are kept, newest first. For everybody with a role, as all of these."""
    moment, _, known = (cursor or "").partition("-")
    before = (moment_of(moment), known) if cursor else None
    rows = await member.read(lambda view: view.list_bundles(before, limit + 1))
    return page(rows, limit, lambda one: f"{moment_text(one.created_at)}-{one.content_hash}")


@router.get("/active", response_model=ActiveBundle, operation_id="get_active_bundle")
async def active(person: Person, response: Response) -> Any:
    """Return the bundle in force."""
    answer = await person.ask("policy_active")
    response.headers["ETag"] = f'"{answer["active"]["content_hash"]}"'
    return answer


@router.get("/{content_hash}", response_model=Bundle, operation_id="get_bundle")
async def one(content_hash: HashPath, person: Person, response: Response) -> Any:
    """Return a bundle's files."""
    response.headers["ETag"] = f'"{content_hash}"'
    return await person.ask("policy_bundle", content_hash=content_hash)


@router.get("/{name}/impact", response_model=Impact, operation_id="get_bundle_impact")
async def impact(name: Name, person: Person) -> Any:
    """List the live runs that a bundle would refuse now."""
    return await person.ask("policy_impact", content_hash=None if name == advice.ACTIVE else name)


@router.get("/{name}/validation", response_model=Validation, operation_id="validate_bundle")
async def validation(name: Name, person: Person, request: Request) -> Any:
    """Say what is wrong with a bundle, or strange."""
    known = await advice.found(person, name)
    return await advice.worked_out(request, lambda: advice.validation(known.files(name)))


@router.get("/{name}/test", response_model=Trial, operation_id="test_bundle")
async def test(name: Name, person: Person, request: Request) -> Any:
    """Decide a bundle's cases by it."""
    known = await advice.found(person, name)
    return await advice.worked_out(request, lambda: advice.trial(known.files(name)))


@router.get("/{name}/diff", response_model=Difference, operation_id="diff_bundle")
async def diff(name: Name, person: Person, request: Request, against: Annotated[Hash | None, Query()] = None) -> Any:
    """Say what a bundle changes over the one in force, or over another."""
    old = against or advice.ACTIVE
    known, register = await advice.found(person, name, old), await advice.links(person)
    return await advice.worked_out(request, lambda: advice.compared(known.files(old), known.files(name), register))


@router.get("/{name}/matrix", response_model=Access, operation_id="get_bundle_matrix")
async def matrix(name: Name, person: Person, request: Request) -> Any:
    """Say who may do what."""
    known, register = await advice.found(person, name), await advice.links(person)
    return await advice.worked_out(request, lambda: advice.access(known.files(name), register, lambda one: True))


@router.get("/{name}/who-can", response_model=Access, operation_id="who_can")
async def who_can(name: Name, person: Person, request: Request, account: Annotated[AccountName, Query()]) -> Any:
    """Say who may ever run as an account."""
    known, register = await advice.found(person, name), await advice.links(person)
    return await advice.worked_out(
        request,
        lambda: advice.access(known.files(name), register, lambda one: one.account == account and bool(one.access)),
    )


@router.get("/{name}/what-can", response_model=Access, operation_id="what_can")
async def what_can(
    name: Name,
    person: Person,
    request: Request,
    user_id: Annotated[Number, Query()],
    issuer: Annotated[Url | None, Query()] = None,
) -> Any:
    """Say all that a GitLab user may do."""
    known, register = await advice.found(person, name), await advice.links(person)

    def wanted(one: Summary) -> bool:
        return one.user_id == user_id and issuer in (None, one.issuer)

    return await advice.worked_out(request, lambda: advice.access(known.files(name), register, wanted))


@router.get("/{name}/replay", response_model=Replay, operation_id="replay_bundle")
async def replay(name: Name, person: Person, request: Request, days: Annotated[int, Query(ge=1, le=366)] = 30) -> Any:
    """Ask a bundle what was asked within so many days: at most the newest 2000 runs, and as many refusals."""
    known = await advice.found(person, name)
    past = await reading(person, lambda view: advice.recorded(view, days))
    return await advice.worked_out(request, lambda: advice.replayed(past, known.files(name)))


@router.post("/validate", response_model=Validation, operation_id="validate_files", dependencies=CHANGES)
async def validate_files(body: Draft, member: Reader, request: Request) -> Any:
    """Say what is wrong with files that are nowhere kept, or strange."""
    return await advice.worked_out(request, lambda: advice.validation(body.files))


@router.post("/test", response_model=Trial, operation_id="test_files", dependencies=CHANGES)
async def test_files(body: Draft, member: Reader, request: Request) -> Any:
    """Decide the cases of files that are nowhere kept by them."""
    return await advice.worked_out(request, lambda: advice.trial(body.files))


@router.post("/diff", response_model=Difference, operation_id="diff_files", dependencies=CHANGES)
async def diff_files(body: Comparison, person: Person, request: Request) -> Any:
    """Say what files that are nowhere kept change over the bundle in force, or over another."""
    old = body.against or advice.ACTIVE
    known, register = await advice.found(person, old), await advice.links(person)
    return await advice.worked_out(request, lambda: advice.compared(known.files(old), body.files, register))


@router.post("/replay", response_model=Replay, operation_id="replay_files", dependencies=CHANGES)
async def replay_files(body: PastDraft, member: Reader, request: Request) -> Any:
    """Ask files that are nowhere kept what was asked within so many days: at most 2000 runs, and as many refusals."""
    past = await member.read(lambda view: advice.recorded(view, body.days))
    return await advice.worked_out(request, lambda: advice.replayed(past, accepted(body.files)))
