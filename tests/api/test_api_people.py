"""The people's API: each may do what is theirs, as the broker says; web relays, and adds nothing."""

from __future__ import annotations

import base64
import concurrent.futures as futures
import threading
from typing import Any, get_args

import pytest

from bridge.api.callers import PEOPLE_AT_ONCE
from bridge.api.consent import Act
from bridge.api.kills import Scope
from bridge.model import KillScope
from bridge.people.consenting import ConsentAct
from bridge.register import LinkState
from tests.api.people_web import Site, anonymous, refused
from tests.fakes import REALM
from tests.unit.core.bench import ISSUER, wait_until

NO_LINK = "0000-0000-0000"


def proposal(**changes: Any) -> dict[str, Any]:
    """Mallory's account for GitLab's user 103."""
    return {"issuer": ISSUER, "user_id": 103, "account": "mallory", "reason": "new here"} | changes


def test_the_words_of_the_api_are_those_of_the_desks() -> None:
    assert get_args(Act) == tuple(ConsentAct)
    assert get_args(Scope) == tuple(KillScope)


def test_somebody_learns_who_they_are_and_that_it_is_us(web_site: Site) -> None:
    answer = web_site.api("ann", "GET", "/v1/me")
    assert answer.json() == {
        "principal": f"ann@{REALM}",
        "account": "ann",
        "roles": ["approver", "author"],
        "method": "negotiate",
        "person": True,
    }
    reply = answer.headers["www-authenticate"].removeprefix("Negotiate ")
    assert base64.b64decode(reply).decode() == f"reply to ann@{REALM}"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.threat("T39")
@pytest.mark.parametrize(
    "shown",
    [
        None,
        "",
        "Negotiate",
        "Negotiate ",
        "Basic YTpi",
        "alice@REALM.TEST",
        "Bearer x, Negotiate alice@REALM.TEST",
    ],
    ids=repr,
)
def test_nobody_without_a_token_reaches_the_broker(still_site: Site, shown: str | None) -> None:
    for path in ("/v1/me", "/v1/links", "/v1/consent", "/v1/kills"):
        answer = still_site.http.get(path, headers={} if shown is None else {"Authorization": shown})
        refused(answer, 401, "negotiate.required")
        assert answer.headers["www-authenticate"] == "Negotiate"
    assert still_site.client.asked == []


@pytest.mark.threat("T39")
def test_two_authorization_headers_are_none(still_site: Site) -> None:
    twice = [("Authorization", f"Negotiate {who}@{REALM}") for who in ("alice", "oli")]
    refused(still_site.http.get("/v1/me", headers=twice), 422, "caller.ambiguous")
    assert still_site.client.asked == []


def test_a_token_that_proves_nothing_is_asked_for_again(web_site: Site) -> None:
    answer = web_site.http.get("/v1/me", headers={"Authorization": "Negotiate nobody"})
    refused(answer, 401, "negotiate.refused")
    assert answer.headers["www-authenticate"] == "Negotiate"


@pytest.mark.threat("T40")
def test_a_row_takes_two_administrators(web_site: Site) -> None:
    made = web_site.api("ann", "POST", "/v1/links", proposal())
    assert made.status_code == 201
    link = made.json()["link"]
    assert (link["state"], link["account"], link["uid"]) == ("proposed", "mallory", 20003)
    path = f"/v1/links/{link['link_id']}"

    refused(web_site.api("ann", "POST", f"{path}/approve", {"reason": "me too"}), 403, "link.four_eyes")
    assert web_site.broker.register.read().active_link(ISSUER, 103) is None
    done = web_site.api("abe", "POST", f"{path}/approve", {"reason": "checked her badge"})
    assert (done.status_code, done.json()["link"]["state"]) == (200, "active")
    refused(web_site.api("abe", "POST", f"{path}/approve", {"reason": "again"}), 409, "link.state")
    refused(web_site.api("abe", "POST", f"{path}/reject", {"reason": "after all"}), 409, "link.state")
    ended = web_site.api("mallory", "POST", f"{path}/end", {"reason": "not mine"})
    assert ended.json()["link"]["state"] == "revoked"
    assert web_site.broker.register.read().active_link(ISSUER, 103) is None


def test_a_rejected_proposal_links_nobody(web_site: Site) -> None:
    link_id = web_site.api("ann", "POST", "/v1/links", proposal()).json()["link"]["link_id"]
    done = web_site.api("abe", "POST", f"/v1/links/{link_id}/reject", {"reason": "who is that?"})
    assert done.json()["link"]["state"] == LinkState.REJECTED
    assert web_site.broker.register.read().active_link(ISSUER, 103) is None


ADMIN_CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/links", proposal()),
    ("POST", f"/v1/links/{NO_LINK}/approve", {"reason": "r"}),
    ("POST", f"/v1/links/{NO_LINK}/reject", {"reason": "r"}),
    ("POST", "/v1/kills", {"scope": "all", "reason": "r"}),
    ("POST", f"/v1/kills/{NO_LINK}/lift", {"reason": "r"}),
]


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("method", "path", "body"), ADMIN_CALLS, ids=[path for _, path, _ in ADMIN_CALLS])
@pytest.mark.parametrize("who", ["alice", "vic", "root", "host/node1.realm.test"])
def test_nobody_without_the_role_does_what_needs_it(
    still_site: Site, who: str, method: str, path: str, body: dict[str, Any]
) -> None:
    refused(still_site.api(who, method, path, body), 403, "caller.role")
    assert still_site.broker.register.read().revision == 0
    assert still_site.broker.records(phase="denied")[-1]["detail"]["by"] == f"{who}@{REALM}"


@pytest.mark.threat("T50")
def test_a_link_of_somebody_else_looks_like_none(web_site: Site) -> None:
    mallorys = web_site.linked("mallory", "103:mallory")
    alices = web_site.linked("alice", "106:alice2")
    seen = {
        anonymous(web_site.api("alice", "POST", f"/v1/links/{link_id}/end", {"reason": "r"}).text)
        for link_id in (mallorys, NO_LINK, "ZZZZ-ZZZZ-ZZZZ")
    }
    assert len(seen) == 1
    pages = {anonymous(web_site.post("alice", "/link/end", {"link_id": one}).text) for one in (mallorys, NO_LINK)}
    assert len(pages) == 1
    assert web_site.broker.register.read().active_link(ISSUER, 103) is not None

    assert [one["link_id"] for one in web_site.api("alice", "GET", "/v1/links").json()["links"]] == [alices]
    assert len(web_site.api("vic", "GET", "/v1/links").json()["links"]) == 2


@pytest.mark.threat("T50")
def test_who_is_no_administrator_learns_nothing_of_what_there_is(web_site: Site) -> None:
    mallorys = web_site.linked("mallory", "103:mallory")
    switch = web_site.api("oli", "POST", "/v1/kills", {"scope": "account", "account": "bob", "reason": "r"}).json()
    for known, unknown in (
        (f"/v1/links/{mallorys}/approve", f"/v1/links/{NO_LINK}/approve"),
        (f"/v1/kills/{switch['switch']['switch_id']}/lift", f"/v1/kills/{NO_LINK}/lift"),
    ):
        answers = [web_site.api("alice", "POST", path, {"reason": "r"}) for path in (known, unknown)]
        assert len({(one.status_code, anonymous(one.text)) for one in answers}) == 1
    for user_id, account in ((101, "bob"), (103, "mallory"), (999, "nobody-is-called-so")):
        body = proposal(user_id=user_id, account=account)
        refused(web_site.api("alice", "POST", "/v1/links", body), 403, "caller.role")


def test_an_owner_says_who_may_act_as_them(web_site: Site) -> None:
    before = web_site.api("alice", "GET", "/v1/consent").json()["standing"]
    assert (before["account"], before["consent"], before["rows"]) == ("alice", None, [[ISSUER, 101]])
    project = {"issuer": ISSUER, "project_id": 7}
    denied = web_site.api("alice", "POST", "/v1/consent", {"act": "deny", **project})
    assert (denied.status_code, denied.json()["consent"]["denied"]) == (200, [project])
    assert web_site.api("alice", "POST", "/v1/consent", {"act": "stop"}).json()["consent"]["mode"] == "stopped"
    assert web_site.api("bob", "GET", "/v1/consent").json()["standing"]["consent"] is None
    refused(web_site.api("alice", "POST", "/v1/consent", {"act": "allow"}), 422, "consent.project")
    refused(web_site.api("host/node1.realm.test", "GET", "/v1/consent"), 403, "caller.no_account")


@pytest.mark.threat("T16")
def test_an_operator_stops_and_lets_go_on(web_site: Site) -> None:
    body = {"scope": "user", "issuer": ISSUER, "number": 101, "reason": "laptop stolen"}
    thrown = web_site.api("oli", "POST", "/v1/kills", body)
    assert (thrown.status_code, thrown.json()["new"]) == (201, True)
    switch_id = thrown.json()["switch"]["switch_id"]
    assert web_site.api("oli", "POST", "/v1/kills", body).json()["new"] is False
    assert [one["switch_id"] for one in web_site.api("vic", "GET", "/v1/kills").json()["switches"]] == [switch_id]
    refused(web_site.api("alice", "GET", "/v1/kills"), 403, "caller.role")

    lifted = web_site.api("oli", "POST", f"/v1/kills/{switch_id}/lift", {"reason": "found"})
    assert lifted.json()["switch"]["lifted_by"] == f"oli@{REALM}"
    assert web_site.api("vic", "GET", "/v1/kills").json()["switches"] == []
    assert len(web_site.api("vic", "GET", "/v1/kills?lifted=true").json()["switches"]) == 1
    refused(web_site.api("oli", "POST", f"/v1/kills/{switch_id}/lift", {"reason": "again"}), 409, "kill.lifted")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/links", proposal(user_id="103")),
        ("/v1/links", proposal(user_id=0)),
        ("/v1/links", proposal(user_id=2**63)),
        ("/v1/links", proposal(user_id=True)),
        ("/v1/links", proposal(user_id=103.0)),
        ("/v1/links", proposal(account="../root")),
        ("/v1/links", proposal(account="root\n")),
        ("/v1/links", proposal(reason="a\x00b")),
        ("/v1/links", proposal(reason="a\nb")),
        ("/v1/links", proposal(reason="a\u202eb")),
        ("/v1/links", proposal(reason="a" * 1001)),
        ("/v1/links", proposal(state="active")),
        ("/v1/links", proposal(operator="root(0)")),
        ("/v1/links", [proposal()]),
        ("/v1/links", {"issuer": ISSUER}),
        ("/v1/links/abc/end", {"reason": "r"}),
        (f"/v1/links/{NO_LINK}%0a/end", {"reason": "r"}),
        (f"/v1/links/{NO_LINK.replace('0', 'I')}/end", {"reason": "r"}),
        (f"/v1/links/{NO_LINK}/end", {}),
        ("/v1/consent", {"act": "become-root"}),
        ("/v1/consent", {"act": "stop", "account": "bob"}),
        ("/v1/consent", {"act": "deny", "issuer": ISSUER, "project_id": "7"}),
        ("/v1/kills", {"scope": "everything", "reason": "r"}),
        ("/v1/kills", {"scope": "all", "reason": "r", "authorization": "Negotiate oli@REALM.TEST"}),
    ],
    ids=repr,
)
def test_a_malformed_call_never_reaches_the_broker(still_site: Site, path: str, body: Any) -> None:
    refused(still_site.api("oli", "POST", path, body), 422, "request.invalid")
    assert still_site.client.asked == []


@pytest.mark.threat("T38")
def test_people_who_wait_leave_threads_for_jobs(web_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    acceptor, gate = web_site.broker.people.callers.acceptor, threading.Event()
    accept = acceptor.accept_header
    monkeypatch.setattr(acceptor, "accept_header", lambda *shown, **how: (gate.wait(10), accept(*shown, **how))[1])

    def asked() -> int:
        return sum(op == "whoami" for op, _ in web_site.client.asked)

    with futures.ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(web_site.api, "alice", "GET", "/v1/me") for _ in range(60)]
        try:
            wait_until(lambda: asked() >= PEOPLE_AT_ONCE, "a full counter")
            assert web_site.http.get("/health/ready").status_code == 200
            assert asked() == PEOPLE_AT_ONCE
        finally:
            gate.set()
        assert {one.result().status_code for one in waiting} == {200}


def test_a_broker_that_is_away_is_an_outage(web_site: Site) -> None:
    web_site.client._path = web_site.client._path.with_name("gone")
    answer = web_site.api("alice", "GET", "/v1/me")
    refused(answer, 503, "broker.unreachable")
    assert answer.headers["retry-after"] == "5"
    assert web_site.page("alice", "/link").status_code == 503
