"""What the API takes and answers, as OpenAPI 3.1: from the routes themselves, and what they all have in common.

Common is what a framework does not see: who may pass a guard, the headers that guards read, and that every error is a
problem document (RFC 9457).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from bridge.api.callers import Person, credential, header_only
from bridge.api.cross_site import CLIENT_HEADER, from_own_client
from bridge.api.etags import if_match
from bridge.api.executor import live_run
from bridge.api.guards import everybody
from bridge.api.idempotency import HEADER, idempotency_key
from bridge.api.node import negotiate_token

router = APIRouter(prefix="/v1")

Json = dict[str, Any]

PROBLEM: Final = "application/problem+json"

TITLES: Final = {
    "400": "The request can not be read, or names a host that is not ours.",
    "401": "Nothing shows who asks, or it does not count.",
    "403": "The caller may not do this, or the request comes from another site.",
    "404": "There is no such thing.",
    "405": "This address does not take this method.",
    "409": "It is in a state in which this can't be done.",
    "412": "It has changed since it was read.",
    "413": "The request's body is too long.",
    "422": "The request is not of the form that this address takes.",
    "428": "Nothing says which version the caller has read.",
    "500": "The bridge broke one of its own rules, and stopped.",
    "502": "Something that the bridge needs gave no good answer.",
    "503": "Something that the bridge needs is down; a later try may work.",
}

ALWAYS: Final = ("400", "404", "405", "413", "422", "500", "503")

SCHEMES: Final[Json] = {
    "negotiate": {
        "type": "http",
        "scheme": "negotiate",
        "description": "A Kerberos ticket for HTTP/<host> (RFC 4559); one token is one request.",
    },
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API token (cib_...), or a token of an identity provider that the settings name.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "__Host-ci-bridge",
        "description": "A session of the console; what changes something also needs our Origin and client header.",
    },
    "run": {"type": "http", "scheme": "bearer", "description": "The session secret of a run."},
}

PROBLEM_SCHEMA: Final[Json] = {
    "title": "Problem",
    "description": "Problem details (RFC 9457). Codes are listed in docs/errors.md.",
    "type": "object",
    "required": ["type", "code", "title", "remedy", "reference", "status"],
    "properties": {
        "type": {"type": "string", "description": "urn:ci-bridge:<code>"},
        "code": {"type": "string"},
        "title": {"type": "string"},
        "remedy": {"type": "string"},
        "reference": {"type": "string", "description": "For whoever asks the operators."},
        "status": {"type": "integer"},
    },
}

_PEOPLE: Final[list[Json]] = [{"negotiate": []}, {"bearer": []}, {"session": []}]


def _header(name: str, pattern: str, text: str, *, required: bool) -> Json:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": required, "schema": schema, "description": text}


_HEADERS: Final = {
    from_own_client: _header(CLIENT_HEADER, r"^[ -~]{1,256}$", "Names the calling program.", required=True),
    if_match: _header("If-Match", r'^"[1-9][0-9]{0,15}"$', "The ETag of what was read.", required=True),
    idempotency_key: _header(
        HEADER, r"^[!-~]{16,128}$", "The same key and request again get the same answer, for 24 hours.", required=False
    ),
}


def document(routers: Iterable[APIRouter]) -> Json:
    """Return the OpenAPI document of these routers."""
    routes = [route for one in routers for route in one.routes if isinstance(route, APIRoute)]
    made: Json = get_openapi(
        title="CI bridge",
        version="1",
        summary="Runs every GitLab CI job on the cluster as the person who started it.",
        routes=routes,
    )
    components = made.setdefault("components", {})
    components["securitySchemes"] = SCHEMES
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    for route in routes:
        for method in route.methods or ():
            _complete(made["paths"][route.path_format][method.lower()], route)
    return made


@router.get("/openapi.json", operation_id="get_openapi", tags=["openapi"])
async def show(person: Person, request: Request) -> dict[str, Any]:
    """Return this document. For everybody who shows who they are."""
    await person.ask("whoami")
    found: Json = request.app.state.openapi
    return found


def _complete(operation: Json, route: APIRoute) -> None:
    calls = set(_calls(route.dependant))
    operation["security"] = _security(calls)
    operation.setdefault("tags", [route.path.split("/")[2 if route.path.startswith("/v1/") else 1]])
    given = [one for one in operation.get("parameters", []) if one["name"].lower() != "authorization"]
    operation["parameters"] = given + [header for call, header in _HEADERS.items() if call in calls]
    if not operation["parameters"]:
        del operation["parameters"]
    responses = operation["responses"]
    for status in _statuses(calls, public_reading=everybody in calls and route.methods == {"GET"}):
        responses[status] = {
            "description": TITLES[status],
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    operation["responses"] = dict(sorted(responses.items()))


def _security(calls: set[Any]) -> list[Json]:
    if everybody in calls:
        return []
    if live_run in calls:
        return [{"run": []}]
    if negotiate_token in calls:
        return [{"negotiate": []}]
    return [{"negotiate": []}, {"bearer": []}] if header_only in calls and credential not in calls else _PEOPLE


def _statuses(calls: set[Any], *, public_reading: bool) -> Iterator[str]:
    yield from ALWAYS
    if public_reading:
        return
    yield from ("401", "403", "409")
    if if_match in calls:
        yield from ("412", "428")


def _calls(dependant: Dependant) -> Iterator[Any]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)
