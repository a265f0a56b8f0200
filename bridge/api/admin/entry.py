"""Who may read what: roles as the broker says them at this moment. For changes the broker asks again by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from anyio import to_thread
from fastapi import Depends

from bridge.api.callers import Asker, Person
from bridge.api.cross_site import from_own_client
from bridge.audit.ledger import View
from bridge.errors import PolicyRefused
from bridge.policy.roles import Role

T = TypeVar("T")

PREFIX: Final = "/v1/admin"
CHANGES: Final = [Depends(from_own_client)]
"""Dependencies of every route that changes something."""

ROLES_MARK: Final = "__ci_bridge_roles__"


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody with one of the roles that a route needs."""

    person: Asker
    principal: str
    roles: frozenset[Role]

    async def read(self, work: Callable[[View], T]) -> T:
        """Return what ``work`` reads in one view of the book, in a thread."""
        return await reading(self.person, work)


async def reading(person: Asker, work: Callable[[View], T]) -> T:
    """Return what ``work`` reads in one view of the book, in a thread that no job needs."""
    ledger = person.counter.ledger

    def read() -> T:
        with ledger.read() as view:
            return work(view)

    return await to_thread.run_sync(read, limiter=person.counter.seats)


def having(*roles: Role) -> Callable[[Asker], Awaitable[Member]]:
    """Return a dependency that lets callers with one of the roles pass; raises PolicyRefused ``caller.role``."""

    async def member(person: Person) -> Member:
        found = await person.ask("whoami")
        has = frozenset(Role(name) for name in found["roles"])
        require(str(found["principal"]), has, *roles)
        return Member(person, str(found["principal"]), has)

    setattr(member, ROLES_MARK, frozenset(roles))
    return member


def require(principal: str, has: frozenset[Role], *roles: Role) -> None:
    """Pass where one of the roles is there; raises PolicyRefused ``caller.role``."""
    if has.isdisjoint(roles):
        needed = " or ".join(role.value for role in roles)
        raise PolicyRefused(
            "caller.role",
            f"This needs the role {needed}, which you don't have.",
            "Ask the policy's authors to give it to you in roles.toml.",
            principal=principal,
            needed=needed,
        )


Reader = Annotated[Member, Depends(having(*Role))]
"""Anybody with a role."""

Auditor = Annotated[Member, Depends(having(Role.AUDITOR))]
Operator = Annotated[Member, Depends(having(Role.OPERATOR))]

Json = dict[str, Any]
