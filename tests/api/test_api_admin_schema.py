"""The whole API against its own OpenAPI document: random calls by everybody, over a real socket, and what it lists."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from typer.testing import CliRunner

from bridge.api.app import ROUTERS
from bridge.api.openapi import document
from bridge.cli.main import app as command
from tests.api.admin_site import NOBODY, PEOPLE, Admin, admin_site
from tests.api.conftest import _broker
from tests.api.people_web import ticket
from tests.unit.core.bench import ISSUER, wait_until

EXAMPLES = 5
"""For each operation, twice; fixed by ``derandomize``, so that what fails once fails again."""

DOCUMENT = document(ROUTERS)
OPERATIONS = sorted(
    (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods if method != "parameters"
)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
BEARER = "bearer"
NOBODYS = (None, "Bearer cib_" + "x" * 43)
MEMBERS = (BEARER, *(ticket(who)["Authorization"] for who in PEOPLE))
CALLERS = (*NOBODYS, ticket(NOBODY)["Authorization"], *MEMBERS)
BOUNDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Served:
    """The application on a socket."""

    url: str
    session: requests.Session
    bearer: str
    known: dict[str, Any]


@pytest.fixture(scope="module")
def served(people_key: rsa.RSAPrivateKey) -> Iterator[Served]:
    """Web as it is served, over a broker with a run and a submitted proposal."""
    with _broker(people_key) as made, admin_site(*made, public_hosts=["127.0.0.1", "bridge.realm.test"]) as it:
        admin = Admin(it)
        it.broker.admission.admit(it.broker.evidence())
        proposal = admin.stepped("ann", admin.proposed(), "submit")
        token = admin.post("amy", "/api-tokens", {"scopes": ["author"], "days": 1, "note": "schema"}).json()
        known = {
            "run_id": admin.get("vic", "/runs").json()["items"][0]["run_id"],
            "reference": admin.get("vic", "/decisions").json()["items"][0]["reference"],
            "proposal_id": proposal["proposal_id"],
            "content_hash": proposal["content_hash"],
            "name": "active",
            "number": 1,
            "issuer": ISSUER,
            "user_id": 101,
            "account": "alice",
            "files": admin.files("schema"),
            "scopes": ["author"],
        }
        # The parts live as long as the client of the fixture above.
        server = uvicorn.Server(
            uvicorn.Config(it.http.app, host="127.0.0.1", port=0, lifespan="off", log_level="critical", ws="none")
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_until(lambda: server.started, "web")
            port = server.servers[0].sockets[0].getsockname()[1]
            with requests.Session() as session:
                yield Served(f"http://127.0.0.1:{port}", session, f"Bearer {token['secret']}", known)
        finally:
            server.should_exit = True
            thread.join()


def is_public(path: str, method: str) -> bool:
    """Whether the document says that nobody is asked who they are."""
    return DOCUMENT["paths"][path][method]["security"] == []


@pytest.mark.threat("T39")
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{method} {path}" for path, method in OPERATIONS])
def test_no_call_is_answered_otherwise_than_documented(served: Served, path: str, method: str) -> None:
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method.upper()]
    public = is_public(path, method)

    def holds(case: schemathesis.Case, caller: str | None) -> None:
        shown = served.bearer if caller == BEARER else caller
        headers = {} if shown is None else {"Authorization": shown}
        if case.headers is not None:
            case.headers.pop("Authorization", None)
        answer = case.call(base_url=served.url, session=served.session, headers=headers, timeout=30)
        case.validate_response(answer, checks=CHECKS)
        if not public and caller in NOBODYS:
            assert answer.status_code >= 400, "nobody is let in who shows nothing that counts"

    @BOUNDED
    @given(case=st.one_of(*(operation.as_strategy(mode) for mode in MODES)), caller=st.sampled_from(CALLERS))
    def anything(case: schemathesis.Case, caller: str | None) -> None:
        holds(case, caller)

    @BOUNDED
    @given(case=operation.as_strategy(GenerationMode.POSITIVE), caller=st.sampled_from(MEMBERS))
    def with_what_there_is(case: schemathesis.Case, caller: str) -> None:
        """By somebody with a role, about what exists."""
        case.cookies = {}
        for part in (case.path_parameters, case.query, case.body):
            if isinstance(part, dict):
                part.update({name: served.known[name] for name in part if name in served.known})
        if case.headers is not None and "If-Match" in case.headers:
            case.headers["If-Match"] = '"2"'
        holds(case, caller)

    anything()
    with_what_there_is()


def test_only_health_and_admission_are_public() -> None:
    public = {(method, path) for path, method in OPERATIONS if is_public(path, method)}
    assert public == {("get", "/health/live"), ("get", "/health/ready"), ("post", "/v1/runs")}


def test_the_document_has_every_route_and_says_all_that_one_must_know() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert {(route.path_format, method.lower()) for route in routes for method in route.methods or ()} == set(
        OPERATIONS
    )
    ids = [DOCUMENT["paths"][path][method]["operationId"] for path, method in OPERATIONS]
    assert len(set(ids)) == len(ids)
    for path, method in OPERATIONS:
        operation = DOCUMENT["paths"][path][method]
        assert operation["tags"]
        assert operation["summary"]
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"]
        if path.startswith("/v1/admin/") and path != "/v1/admin/runs/{run_id}/log":
            good = next(response for status, response in operation["responses"].items() if int(status) < 300)
            assert good["content"]["application/json"]["schema"]


def test_whoever_shows_who_they_are_gets_the_document_and_nobody_else(still_admin: Admin) -> None:
    http = still_admin.web.http
    assert http.get("/v1/openapi.json").status_code == 401
    answer = http.get("/v1/openapi.json", headers=ticket(NOBODY))
    assert answer.json() == json.loads(json.dumps(DOCUMENT))
    printed = CliRunner().invoke(command, ["api", "openapi"])
    assert json.loads(printed.stdout) == answer.json()
