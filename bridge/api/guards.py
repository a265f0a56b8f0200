"""Which route needs whose proof: each names a guard among its dependencies, or says that it is for everybody (T39).

A guard is a dependency that lets nobody pass who has not proven something: a run's session, a Kerberos ticket. It is
marked where it is written, and web does not start with a route that has none.

A dependency that waits for nothing is ``async def``, here and in the routers: FastAPI runs every other in a thread,
which costs more than most of them do, and of which there may be none left (``threads``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from bridge.errors import Defect

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__ci_bridge_guard__"


def guard(dependency: F) -> F:
    """Mark a dependency as one that authenticates whoever asks; returns it."""
    setattr(dependency, _MARK, True)
    return dependency


@guard
async def everybody() -> None:
    """Stand among a route's dependencies to say that it is for everybody, on purpose."""


def unguarded(router: APIRouter) -> set[tuple[str, str]]:
    """Return (method, path) of the routes of ``router`` without a guard; a route of any other kind has none."""
    found = set()
    for route in router.routes:
        if not isinstance(route, APIRoute):
            found.add((type(route).__name__, str(getattr(route, "path", route))))
        elif not any(getattr(call, _MARK, False) for call in _calls(route.dependant)):
            found.update((method, route.path) for method in route.methods or ())
    return found


def guarded(router: APIRouter) -> APIRouter:
    """Return ``router``; raises Defect ``api.unguarded`` where one of its routes would answer just anybody."""
    found = sorted(unguarded(router))
    if found:
        raise Defect(
            "api.unguarded",
            f"Web has an address that asks nobody who they are: {' '.join(found[0])}.",
            "Do not run this version; report it to the bridge's developers.",
        )
    return router


def _calls(dependant: Dependant) -> Iterator[Any]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)
