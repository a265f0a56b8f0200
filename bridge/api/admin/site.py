"""What there is: clusters of the bundle in force, the runners that runs came by, and who has which role."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from bridge.api.admin import advice
from bridge.api.admin.entry import PREFIX, Reader
from bridge.api.callers import Person
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit, Page, page
from bridge.listing import RunnerRow
from bridge.model import Cluster
from bridge.policy.clusters import FILE as CLUSTERS_FILE
from bridge.policy.clusters import parse_clusters
from bridge.policy.roles import FILE as ROLES_FILE
from bridge.policy.roles import Role, parse_roles

router = APIRouter(prefix=PREFIX)


class Me(BaseModel):
    """Who the bridge takes the caller for."""

    principal: str
    account: str | None
    """The posix account whose owner this is."""
    roles: list[Role]


class Clusters(BaseModel):
    """The clusters of the bundle in force."""

    content_hash: str
    default: str
    clusters: list[Cluster]


class MemberRoles(BaseModel):
    """A principal, and what it may do."""

    principal: str
    roles: list[Role]


class Roles(BaseModel):
    """Who may do what, by the bundle that was approved last."""

    content_hash: str
    members: list[MemberRoles]


@router.get("/me", response_model=Me, operation_id="get_admin_me", tags=["me"])
async def me(person: Person) -> Any:
    """Return the caller's principal, account and roles, as they count for this very request. For everybody."""
    return await person.ask("whoami")


@router.get("/clusters", response_model=Clusters, operation_id="list_clusters", tags=["clusters"])
async def clusters(person: Person) -> Any:
    """Return the clusters of the bundle in force. For everybody with a role."""
    known = await advice.found(person)
    parsed = parse_clusters(known.active[CLUSTERS_FILE])
    return {
        "content_hash": known.active_hash,
        "default": parsed.default,
        "clusters": list(parsed.by_name.values()),
    }


@router.get("/runners", response_model=Page[RunnerRow], operation_id="list_runners", tags=["runners"])
async def runners(
    member: Reader,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,16}@[\x21-\x7e]{1,1024}$", description=CURSOR)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """List the GitLab Runners that runs came by. For everybody with a role."""
    number, _, issuer = (cursor or "").partition("@")
    after = (issuer, int(number)) if cursor else None
    found = await member.read(lambda view: view.list_runners(after, limit + 1))
    return page(found, limit, lambda one: f"{one.runner_id}@{one.issuer}")


@router.get("/roles", response_model=Roles, operation_id="list_roles", tags=["roles"])
async def roles(person: Person) -> Any:
    """Return who may do what. For everybody with a role."""
    answer = await person.ask("policy_active")
    active, base = answer["active"]["content_hash"], answer["active"]["base_hash"]
    files = answer["files"] if base == active else await advice.kept(person, base)
    by_principal = parse_roles(files.get(ROLES_FILE, "")).by_principal
    members = [{"principal": who, "roles": sorted(has)} for who, has in sorted(by_principal.items())]
    return {"content_hash": base, "members": members}
