"""Every address asks who you are, or says that it is for everybody; one that forgot keeps web from starting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Mount, Route

from bridge.api.app import make_app
from bridge.api.guards import everybody, guarded, unguarded
from bridge.errors import Defect
from tests.api.people_web import CLIENT, FORM, URL, Site, make_parts, settings

PUBLIC = {
    ("POST", "/v1/runs"): "the evidence in its body is what admission judges",
    ("GET", "/health/live"): "says nothing",
    ("GET", "/health/ready"): "says nothing",
    ("GET", "/assets/page.css"): "a fixed file",
}
FILLED = {
    "run_id": "a" * 26,
    "invocation": "1" * 32,
    "number": "1",
    "name": "active",
    "content_hash": "0" * 64,
    **dict.fromkeys(("link_id", "switch_id", "proposal_id", "token_id", "reference"), "0000-0000-0000"),
}


def _flat(routes: Any) -> Iterator[Any]:
    for route in routes:
        inner = getattr(route, "routes", None)
        if inner is None and hasattr(route, "original_router"):
            inner = route.original_router.routes
        yield from _flat(inner) if inner and not isinstance(route, APIRoute) else [route]


def _routes(app: FastAPI) -> list[APIRoute]:
    found = list(_flat(app.routes))
    assert all(isinstance(route, APIRoute) for route in found)
    return found


def _addresses(app: FastAPI) -> set[tuple[str, str]]:
    return {(method, route.path) for route in _routes(app) for method in route.methods or ()}


@pytest.mark.threat("T39")
def test_every_address_is_guarded_or_public_by_name(still_site: Site) -> None:
    app = still_site.http.app
    assert isinstance(app, FastAPI)
    everything = APIRouter()
    everything.routes.extend(_routes(app))
    assert len(_addresses(app)) >= 25
    assert unguarded(everything) == set()
    public = {
        (method, route.path)
        for route in _routes(app)
        for method in route.methods or ()
        if everybody in [dependency.call for dependency in route.dependant.dependencies]
    }
    assert public == PUBLIC.keys()


@pytest.mark.threat("T39")
def test_whoever_shows_nothing_is_sent_away_from_every_other_address(still_site: Site) -> None:
    app = still_site.http.app
    assert isinstance(app, FastAPI)
    answers = {}
    for method, path in _addresses(app) - PUBLIC.keys():
        form = path.startswith("/link")
        headers = {"Origin": URL, "Content-Type": FORM} if form else CLIENT
        filled = re.sub(r"\{(\w+)\}", lambda found: FILLED[found[1]], path)
        answers[method, path] = still_site.http.request(method, filled, headers=headers).status_code
    assert answers
    assert set(answers.values()) == {401}, answers
    assert still_site.client.asked == []


@pytest.mark.threat("T39")
def test_web_serves_no_description_of_itself_and_no_directory(still_site: Site) -> None:
    for path in ("/docs", "/redoc", "/openapi.json", "/assets/", "/assets/../pages.py", "/assets/page.html", "/link/"):
        assert still_site.http.get(path).status_code == 404, path


def _forgotten() -> Response:
    return Response()


def _routers() -> dict[str, APIRouter]:
    forgotten, mounted, plain, marked = APIRouter(), APIRouter(), APIRouter(), APIRouter()
    forgotten.add_api_route("/v1/all", _forgotten)
    mounted.routes.append(Mount("/files", app=FastAPI()))
    plain.routes.append(Route("/plain", _forgotten))
    marked.add_api_route("/v1/ok", _forgotten, dependencies=[Depends(everybody)])
    marked.add_api_route("/v1/all", _forgotten, dependencies=[Depends(_forgotten)])
    return {"a route": forgotten, "a mount": mounted, "a plain route": plain, "one of two": marked}


@pytest.mark.threat("T39")
@pytest.mark.parametrize("router", _routers().values(), ids=_routers())
def test_a_forgotten_guard_keeps_web_from_starting(router: APIRouter) -> None:
    with pytest.raises(Defect) as caught:
        guarded(router)
    assert caught.value.code == "api.unguarded"


def test_without_an_address_of_its_own_there_are_no_pages(still_site: Site) -> None:
    document = settings().model_dump()
    document["web"]["url"] = None
    document["issuers"] = [one | {"oauth_client_id": None} for one in document["issuers"]]
    parts = make_parts(still_site.broker, still_site.client)
    app = make_app(type(settings()).model_validate(document), parts)
    assert not [path for _, path in _addresses(app) if path.startswith(("/link", "/assets"))]
