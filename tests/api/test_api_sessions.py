"""A console's session: begun with a ticket, kept in a cookie of which no script and no other site knows."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest

from tests.api.admin_site import Admin
from tests.api.people_web import URL, refused


@pytest.mark.threat("T41")
def test_a_session_begins_with_a_ticket_and_changes_nothing_from_another_site(admin: Admin) -> None:
    answer = admin.post("vic", "/sessions", {})
    assert answer.status_code == 201
    assert "token" not in answer.json()
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie.key == "__Host-ci-bridge"
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (
        True,
        True,
        "strict",
        "/",
    )
    shown = {"Cookie": f"{cookie.key}={cookie.value}"}
    http = admin.web.http
    me = http.get("/v1/admin/me", headers=shown)
    assert (me.status_code, me.json()["principal"]) == (200, answer.json()["principal"])
    own = shown | {"X-CI-Bridge-Client": "console", "Origin": URL}
    for headers in (shown, own | {"Origin": "https://evil.test"}, {k: v for k, v in own.items() if k != "Origin"}):
        refused(http.post("/v1/admin/sessions/close", json={}, headers=headers), 403, "request.cross_site")
    assert http.post("/v1/admin/sessions/close", json={}, headers=own).status_code == 200
    refused(http.get("/v1/admin/me", headers=shown), 401, "caller.session")


@pytest.mark.threat("T40")
def test_a_session_does_not_begin_another_one(admin: Admin) -> None:
    (cookie,) = SimpleCookie(admin.post("vic", "/sessions", {}).headers["set-cookie"]).values()
    headers = {"Cookie": f"{cookie.key}={cookie.value}", "X-CI-Bridge-Client": "console", "Origin": URL}
    assert admin.web.http.post("/v1/admin/sessions", json={}, headers=headers).status_code == 401
