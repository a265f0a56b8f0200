"""Which addresses need a ticket that was made for the very request: a table over all that change something."""

from __future__ import annotations

import pytest

from tests.api.admin_site import Admin
from tests.api.people_web import refused
from tests.api.test_api_admin_roles import TABLE, UNSAFE, WHO, call
from tests.fakes import REALM

BOUND = {
    ("POST", "/proposals/{proposal_id}/approve"),
    ("POST", "/proposals/{proposal_id}/reject"),
    ("POST", "/proposals/{proposal_id}/activate"),
    ("POST", "/activations/roll-back"),
    ("POST", "/activations/break-glass"),
    ("POST", "/activations/{number}/confirm"),
}
"""And beside the admin API, lifting a kill switch."""


def unbound(who: str) -> str:
    """A ticket as a browser makes it."""
    return f"Negotiate {who}@{REALM}#"


@pytest.mark.threat("T21")
@pytest.mark.parametrize("row", UNSAFE, ids=" ".join)
def test_a_browsers_ticket_decides_nothing_over_policy(admin: Admin, row: tuple[str, str]) -> None:
    who = WHO[min(TABLE[row][0])]
    answer = call(admin, row, unbound(who))
    if row in BOUND:
        refused(answer, 403, "caller.not_bound")
        last = admin.web.broker.records(phase="denied")[-1]
        assert (last["code"], last["detail"]["by"]) == ("caller.not_bound", f"{who}@{REALM}")
    else:
        assert answer.status_code < 400 or answer.json()["code"] not in ("caller.not_bound", "negotiate.unbound")


@pytest.mark.threat("T21")
def test_a_browsers_ticket_throws_a_kill_switch_and_does_not_lift_it(admin: Admin) -> None:
    headers = {"Authorization": unbound("oli"), "X-CI-Bridge-Client": "t"}
    http = admin.web.http
    thrown = http.post("/v1/kills", json={"scope": "all", "reason": "r"}, headers=headers)
    assert thrown.status_code == 201
    path = f"/v1/kills/{thrown.json()['switch']['switch_id']}/lift"
    refused(http.post(path, json={"reason": "r"}, headers=headers), 403, "caller.not_bound")
    assert len(admin.web.broker.register.read().switches_in_force) == 1
    assert admin.web.api("oli", "POST", path, {"reason": "r"}).status_code == 200
