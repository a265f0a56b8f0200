"""Every role at every address of the admin API: a table, and a test that it is whole. Cross-site and path attacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from bridge.api.admin.entry import PREFIX
from bridge.api.app import ROUTERS
from bridge.api.guards import unguarded
from tests.api.admin_site import NOBODY, PEOPLE, Admin
from tests.api.people_web import URL, refused, ticket
from tests.fakes import REALM
from tests.unit.core.bench import ISSUER

NO_HASH, NO_ID, NO_RUN = "0" * 64, "0000-0000-0000", "a" * 26
WHY = {"reason": "r"}
DECISION = {"content_hash": NO_HASH, "reason": "r"}
FILES = {"files": {"limits.toml": ""}}

ANY = frozenset({"viewer", "author", "approver", "operator", "auditor"})
EVERYBODY = ANY | {"nobody"}
AUTHOR, APPROVER, OPERATOR = frozenset({"author"}), frozenset({"approver"}), frozenset({"operator"})
AUDITOR = frozenset({"auditor"})

TABLE: dict[tuple[str, str], tuple[frozenset[str], str, Any]] = {
    ("GET", "/me"): (EVERYBODY, "/me", None),
    ("GET", "/clusters"): (ANY, "/clusters", None),
    ("GET", "/runners"): (ANY, "/runners", None),
    ("GET", "/roles"): (ANY, "/roles", None),
    ("GET", "/api-tokens"): (EVERYBODY, "/api-tokens", None),
    ("POST", "/api-tokens"): (frozenset({"viewer"}), "/api-tokens", {"scopes": ["viewer"], "days": 1, "note": "n"}),
    ("DELETE", "/api-tokens/{token_id}"): (EVERYBODY, f"/api-tokens/{NO_ID}", None),
    ("POST", "/sessions"): (EVERYBODY, "/sessions", {}),
    ("POST", "/sessions/close"): (OPERATOR, "/sessions/close", {"principal": f"somebody@{REALM}"}),
    ("GET", "/bundles"): (ANY, "/bundles", None),
    ("GET", "/bundles/active"): (ANY, "/bundles/active", None),
    ("GET", "/bundles/{content_hash}"): (ANY, f"/bundles/{NO_HASH}", None),
    ("GET", "/bundles/{name}/impact"): (ANY, "/bundles/active/impact", None),
    ("GET", "/bundles/{name}/validation"): (ANY, "/bundles/active/validation", None),
    ("GET", "/bundles/{name}/test"): (ANY, "/bundles/active/test", None),
    ("GET", "/bundles/{name}/diff"): (ANY, f"/bundles/{NO_HASH}/diff", None),
    ("GET", "/bundles/{name}/matrix"): (ANY, f"/bundles/{NO_HASH}/matrix", None),
    ("GET", "/bundles/{name}/who-can"): (ANY, f"/bundles/{NO_HASH}/who-can?account=alice", None),
    ("GET", "/bundles/{name}/what-can"): (ANY, f"/bundles/{NO_HASH}/what-can?user_id=1", None),
    ("GET", "/bundles/{name}/replay"): (ANY, "/bundles/active/replay", None),
    ("POST", "/bundles/validate"): (ANY, "/bundles/validate", FILES),
    ("POST", "/bundles/test"): (ANY, "/bundles/test", FILES),
    ("POST", "/bundles/diff"): (ANY, "/bundles/diff", FILES),
    ("POST", "/bundles/replay"): (ANY, "/bundles/replay", FILES),
    ("GET", "/proposals"): (ANY, "/proposals", None),
    ("GET", "/proposals/{proposal_id}"): (ANY, f"/proposals/{NO_ID}", None),
    ("POST", "/proposals"): (AUTHOR, "/proposals", {"title": " ", **FILES}),
    ("PUT", "/proposals/{proposal_id}"): (AUTHOR, f"/proposals/{NO_ID}", FILES),
    ("POST", "/proposals/{proposal_id}/submit"): (AUTHOR, f"/proposals/{NO_ID}/submit", {}),
    ("POST", "/proposals/{proposal_id}/withdraw"): (AUTHOR, f"/proposals/{NO_ID}/withdraw", {}),
    ("POST", "/proposals/{proposal_id}/approve"): (APPROVER, f"/proposals/{NO_ID}/approve", DECISION),
    ("POST", "/proposals/{proposal_id}/reject"): (APPROVER, f"/proposals/{NO_ID}/reject", DECISION),
    ("POST", "/proposals/{proposal_id}/activate"): (APPROVER | OPERATOR, f"/proposals/{NO_ID}/activate", WHY),
    ("GET", "/activations"): (ANY, "/activations", None),
    ("POST", "/activations/roll-back"): (APPROVER | OPERATOR, "/activations/roll-back", DECISION),
    ("POST", "/activations/break-glass"): (OPERATOR, "/activations/break-glass", {"minutes": 1, **DECISION}),
    ("POST", "/activations/{number}/confirm"): (OPERATOR, "/activations/9/confirm", {"content_hash": NO_HASH}),
    ("GET", "/runs"): (ANY, "/runs", None),
    ("GET", "/runs/{run_id}"): (ANY, f"/runs/{NO_RUN}", None),
    ("GET", "/runs/{run_id}/log"): (OPERATOR, f"/runs/{NO_RUN}/log", None),
    ("POST", "/runs/{run_id}/cancel"): (OPERATOR, f"/runs/{NO_RUN}/cancel", WHY),
    ("GET", "/decisions"): (ANY, "/decisions", None),
    ("GET", "/decisions/{reference}"): (ANY, f"/decisions/{NO_ID}", None),
    ("POST", "/decisions"): (ANY, "/decisions", {"issuer": ISSUER, "user_id": 1}),
    ("GET", "/audit/entries"): (AUDITOR, "/audit/entries", None),
    ("GET", "/audit/head"): (AUDITOR, "/audit/head", None),
}
"""Who may, at which address, with what. What is named does not exist: whoever may is told so, and others are not."""

WHO = {"nobody": NOBODY} | {roles[0]: who for who, roles in PEOPLE.items() if len(roles) == 1}
UNSAFE = [row for row in TABLE if row[0] != "GET"]


@pytest.fixture(autouse=True)
def no_cookie(request: pytest.FixtureRequest) -> Iterator[None]:
    """A session that one call has begun is no credential of the next, which shows a ticket."""
    sites = [request.getfixturevalue(name) for name in ("admin", "still_admin") if name in request.fixturenames]
    yield
    for site in sites:
        site.web.http.cookies.clear()


def call(admin: Admin, row: tuple[str, str], authorization: str | None, **headers: str) -> Any:
    """Make the call of a row of the table."""
    _, path, body = TABLE[row]
    given = {"X-CI-Bridge-Client": "t", "Content-Type": "application/json", "If-Match": '"1"'}
    given |= {} if authorization is None else {"Authorization": authorization}
    given |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    return admin.web.http.request(row[0], PREFIX + path, json=body, headers=given)


@pytest.mark.threat("T39")
def test_the_table_has_every_address_of_the_admin_api() -> None:
    routes = {
        (method, route.path.removeprefix(PREFIX))
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.path.startswith(f"{PREFIX}/")
        for method in route.methods or ()
    }
    assert routes == set(TABLE)
    assert not any(unguarded(router) for router in ROUTERS)


@pytest.mark.threat("T40")
@pytest.mark.parametrize("row", TABLE, ids=" ".join)
@pytest.mark.parametrize("role", WHO)
def test_nobody_does_what_is_not_their_roles(still_admin: Admin, role: str, row: tuple[str, str]) -> None:
    allowed = TABLE[row][0]
    answer = call(still_admin, row, ticket(WHO[role])["Authorization"])
    if role in allowed:
        assert answer.status_code in (200, 201, 404, 422, 409), answer.text
        assert answer.status_code < 400 or answer.json()["code"] not in ("caller.role", "request.invalid"), answer.text
    else:
        refused(answer, 403, "caller.role")
        if row[0] != "GET" and allowed != ANY:
            last = still_admin.web.broker.records(phase="denied")[-1]
            assert (last["code"], last["detail"]["by"]) == ("caller.role", f"{WHO[role]}@{REALM}")


@pytest.mark.threat("T39")
@pytest.mark.parametrize("row", TABLE, ids=" ".join)
@pytest.mark.parametrize(
    "shown", [None, "Negotiate", "Basic YTpi", "Session x.y", "Bearer cib_" + "x" * 43, "Bearer a.b.c", "Negotiate x"]
)
def test_nobody_is_let_in_who_shows_nothing_that_counts(
    still_admin: Admin, row: tuple[str, str], shown: str | None
) -> None:
    assert call(still_admin, row, shown).status_code == 401


@pytest.mark.threat("T41")
@pytest.mark.parametrize("row", UNSAFE, ids=" ".join)
@pytest.mark.parametrize(
    "headers",
    [
        {"x_ci_bridge_client": ""},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"origin": "https://evil.test"},
        {"origin": "null"},
        {"origin": URL + ".evil.test"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
    ids=str,
)
def test_another_sites_page_changes_nothing(still_admin: Admin, row: tuple[str, str], headers: dict[str, str]) -> None:
    still_admin.web.client.asked.clear()
    for who in ("amy", "oli"):
        answer = call(still_admin, row, ticket(who)["Authorization"], **headers)
        # A body of another type is none that the address takes, which is found out before.
        assert answer.status_code in (403, 422), answer.text
        assert answer.json()["code"] in ("request.cross_site", "request.invalid")
    assert [op for op, _ in still_admin.web.client.asked if op != "whoami"] == []


@pytest.mark.threat("T39")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/admin/audit/entries/",
        "/v1/admin//audit/entries",
        "/v1/admin/./audit/head/../head",
        "/V1/admin/audit/head",
        "/v1/admin/audit/head;a=b",
        "/v1/admin/audit/head%00",
        "/v1/admin%2faudit%2fhead",
        "/v1/admin/audit%2f..%2fme/../audit/head",
        "/health/../v1/admin/audit/head",
        "/health/live/../../v1/admin/audit/head",
        "//bridge.realm.test/v1/admin/audit/head",
        "/v1/admin/audit/head?x=/health/live",
        "/v1/admin/audit/head#/health/live",
    ],
)
def test_no_spelling_of_a_path_gets_around_a_role(still_admin: Admin, path: str) -> None:
    for who in (None, NOBODY, "vic"):
        answer = still_admin.web.http.get(f"{URL}{path}", headers=ticket(who))
        assert answer.status_code in (401, 403, 404), (path, answer.text)


@pytest.mark.threat("T39")
@pytest.mark.parametrize(
    "host", ["evil.test", "bridge.realm.test.evil.test", "bridge.realm.test@evil.test", "", "[::1]"]
)
def test_no_name_of_another_host_is_answered(still_admin: Admin, host: str) -> None:
    for row in TABLE:
        refused(call(still_admin, row, ticket("aud")["Authorization"], host=host), 400, "request.host")


@pytest.mark.threat("T39")
@pytest.mark.parametrize(
    "header", ["X-Forwarded-Host", "X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override", "X-Remote-User"]
)
def test_no_header_makes_another_request_or_person(still_admin: Admin, header: str) -> None:
    for value in ("/health/live", f"aud@{REALM}", "GET"):
        answer = still_admin.web.http.get(f"{PREFIX}/audit/head", headers={header: value} | ticket("vic"))
        refused(answer, 403, "caller.role")


@pytest.mark.threat("T50")
def test_who_has_no_role_can_not_tell_what_there_is(admin: Admin) -> None:
    proposal = admin.proposed()
    admin.web.broker.admission.admit(admin.web.broker.evidence())
    run_id = admin.get("vic", "/runs").json()["items"][0]["run_id"]
    reference = admin.get("vic", "/decisions").json()["items"][0]["reference"]
    for known, unknown in (
        (f"/proposals/{proposal['proposal_id']}", f"/proposals/{NO_ID}"),
        (f"/bundles/{proposal['content_hash']}", f"/bundles/{NO_HASH}"),
        (f"/bundles/{proposal['content_hash']}/matrix", f"/bundles/{NO_HASH}/matrix"),
        (f"/runs/{run_id}", f"/runs/{NO_RUN}"),
        (f"/decisions/{reference}", f"/decisions/{NO_ID}"),
    ):
        texts = {re.sub(r"[0-9A-Z]{4}(-[0-9A-Z]{4}){2}", "R", admin.get(NOBODY, one).text) for one in (known, unknown)}
        assert len(texts) == 1


def test_a_program_does_what_its_token_is_for_and_no_four_eyes_act(admin: Admin) -> None:
    made = admin.post("amy", "/api-tokens", {"scopes": ["author", "approver"], "days": 7, "note": "CI of policies"})
    assert made.status_code == 201, made.text
    token_id, bearer = made.json()["token"]["token_id"], f"Bearer {made.json()['secret']}"
    mine = admin.get("amy", "/api-tokens").json()["tokens"]
    assert [one["token_id"] for one in mine] == [token_id]
    assert made.json()["secret"] not in admin.get("amy", "/api-tokens").text

    def program(method: str, path: str, body: Any = None, **headers: str) -> Any:
        given = {"Authorization": bearer, "X-CI-Bridge-Client": "t", "Content-Type": "application/json"} | headers
        return admin.web.http.request(method, PREFIX + path, json=body, headers=given)

    sent = program("POST", "/proposals", {"title": "from CI", "files": admin.files("ci")})
    assert sent.status_code == 201
    submitted = admin.stepped("ann", admin.proposed("ann", "hers"), "submit")
    path = f"/proposals/{submitted['proposal_id']}/approve"
    body = {"content_hash": submitted["content_hash"], "reason": "r"}
    refused(program("POST", path, body, **{"If-Match": '"2"'}), 403, "caller.not_a_person")
    refused(program("POST", "/api-tokens", {"scopes": ["author"], "days": 1, "note": "n"}), 403, "caller.not_a_person")
    refused(
        admin.post("amy", "/api-tokens", {"scopes": ["author"], "days": 1, "note": "n"}, idempotency_key="x" * 32),
        422,
        "idempotency.not_here",
    )
    ended = admin.web.api("amy", "DELETE", f"{PREFIX}/api-tokens/{token_id}", {})
    assert ended.json()["token"]["revoked_by"] == f"amy@{REALM}"
    refused(program("GET", "/me"), 401, "caller.unknown")
