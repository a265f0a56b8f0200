"""Policy through the admin API: proposed, approved by somebody else, put in force, taken back; and nothing else."""

from __future__ import annotations

import concurrent.futures as futures
import threading
import uuid
from typing import Any

import pytest

from bridge.people.policies import PolicyDesk
from tests.api.admin_site import NOBODY, Admin
from tests.api.people_web import refused, ticket
from tests.fakes import REALM


def active_hash(admin: Admin) -> str:
    """Of the bundle that decides jobs now."""
    return admin.web.broker.policy.bundle.content_hash


def test_a_bundle_comes_into_force_by_two_people_and_goes_back(admin: Admin) -> None:
    first = active_hash(admin)
    proposal = admin.proposed()
    assert (proposal["state"], proposal["author"], proposal["base_hash"]) == ("draft", f"ann@{REALM}", first)
    read = admin.get("abe", f"/proposals/{proposal['proposal_id']}")
    assert read.headers["etag"] == '"1"'
    assert read.json()["files"] == admin.files("other")

    proposal = admin.stepped("ann", proposal, "submit")
    proposal = admin.stepped("abe", proposal, "approve", content_hash=proposal["content_hash"], reason="read it")
    assert active_hash(admin) == first
    activation = admin.stepped("oli", proposal, "activate", reason="as agreed")
    assert active_hash(admin) == activation["content_hash"] == proposal["content_hash"]

    history = admin.get("vic", "/activations").json()
    assert (history["in_force"], [one["kind"] for one in history["items"]]) == (1, ["activate"])
    back = admin.post("oli", "/activations/roll-back", {"content_hash": first, "reason": "it was wrong"})
    assert (back.status_code, active_hash(admin)) == (201, first)
    assert [one["state"] for one in admin.get("vic", "/proposals?state=activated").json()["items"]] == ["activated"]
    assert admin.get("vic", "/proposals?author=nobody@REALM.TEST").json()["items"] == []


def test_new_content_takes_the_approval_away(admin: Admin) -> None:
    proposal = admin.approved()
    body = {"files": admin.files("third")}
    path = f"/proposals/{proposal['proposal_id']}"
    changed = admin.put("ann", path, body, if_match=f'"{proposal["version"]}"')
    assert (changed.status_code, changed.json()["proposal"]["state"]) == (200, "draft")
    assert changed.headers["etag"] == f'"{proposal["version"] + 1}"'
    refused(admin.step("oli", changed.json()["proposal"], "activate", reason="now"), 409, "policy.state")
    refused(admin.step("oli", proposal, "activate", reason="now"), 412, "policy.changed")


@pytest.mark.threat("T40")
def test_nobody_approves_what_they_wrote_themselves(admin: Admin) -> None:
    proposal = admin.stepped("amy", admin.proposed("amy"), "submit")
    said = {"content_hash": proposal["content_hash"], "reason": "mine"}
    refused(admin.step("amy", proposal, "approve", **said), 403, "policy.four_eyes")
    assert admin.web.broker.records(type="policy", phase="denied")[-1]["code"] == "policy.four_eyes"
    assert admin.get("vic", f"/proposals/{proposal['proposal_id']}").json()["proposal"]["state"] == "submitted"


@pytest.mark.threat("T40")
def test_an_approval_is_of_the_content_that_was_read(admin: Admin) -> None:
    proposal = admin.stepped("ann", admin.proposed(), "submit")
    said = {"content_hash": "0" * 64, "reason": "read another"}
    refused(admin.step("abe", proposal, "approve", **said), 412, "policy.changed")


@pytest.mark.threat("T40")
def test_an_approval_counts_once(admin: Admin) -> None:
    proposal = admin.approved()
    admin.stepped("oli", proposal, "activate", reason="now")
    refused(admin.step("oli", proposal, "activate", reason="again"), 412, "policy.changed")
    now = proposal | {"version": proposal["version"] + 1}
    refused(admin.step("oli", now, "activate", reason="again"), 409, "policy.state")


@pytest.mark.threat("T40")
def test_of_two_approvers_who_race_one_decides(admin: Admin) -> None:
    proposal = admin.stepped("ann", admin.proposed(), "submit")
    said = {"content_hash": proposal["content_hash"], "reason": "first"}
    with futures.ThreadPoolExecutor(2) as pool:
        answers = list(
            pool.map(lambda one: admin.step(*one, **said), [("abe", proposal, "approve"), ("amy", proposal, "reject")])
        )
    assert sorted(one.status_code for one in answers) == [200, 412]


@pytest.mark.threat("T40")
@pytest.mark.parametrize("verb", ["submit", "approve", "reject", "withdraw", "activate"])
@pytest.mark.parametrize(
    ("tag", "status", "code"),
    [
        (None, 428, "request.precondition_required"),
        ("*", 428, "request.precondition_required"),
        ("", 412, "policy.changed"),
        ('W/"1"', 412, "policy.changed"),
        ('"2"', 412, "policy.changed"),
        ('"0"', 412, "policy.changed"),
        ('"1", "2"', 412, "policy.changed"),
        ("1", 412, "policy.changed"),
    ],
    ids=repr,
)
def test_nobody_changes_what_they_have_not_read(
    still_admin: Admin, verb: str, tag: str | None, status: int, code: str
) -> None:
    known = still_admin.get("ann", "/proposals?state=draft").json()["items"] or [still_admin.proposed()]
    proposal = known[0]
    assert proposal["version"] == 1
    body: dict[str, Any] = {
        "approve": {"content_hash": proposal["content_hash"], "reason": "r"},
        "reject": {"content_hash": proposal["content_hash"], "reason": "r"},
        "activate": {"reason": "r"},
    }.get(verb, {})
    who = {"submit": "ann", "withdraw": "ann"}.get(verb, "abe")
    headers = {} if tag is None else {"if_match": tag}
    answer = still_admin.post(who, f"/proposals/{proposal['proposal_id']}/{verb}", body, **headers)
    refused(answer, status, code)


def test_an_emergency_takes_two_operators(admin: Admin) -> None:
    files = admin.files("emergency")
    asked = admin.post("oli", "/activations/break-glass", {"minutes": 30, "reason": "fire", "files": files})
    assert asked.status_code == 201, asked.text
    activation, before = asked.json()["activation"], active_hash(admin)
    path = f"/activations/{activation['number']}/confirm"
    refused(admin.post("oli", path, {"content_hash": activation["content_hash"]}), 403, "policy.four_eyes")
    assert active_hash(admin) == before
    done = admin.post("ola", path, {"content_hash": activation["content_hash"]})
    assert (done.status_code, active_hash(admin)) == (200, activation["content_hash"])
    too_long = {"minutes": 241, "reason": "fire", "files": files}
    refused(admin.post("oli", "/activations/break-glass", too_long), 422, "request.invalid")


def test_the_same_request_under_a_key_is_done_once(admin: Admin) -> None:
    body, key = {"title": "once", "files": admin.files("once")}, str(uuid.uuid4())
    answers = [admin.post("ann", "/proposals", body, idempotency_key=key) for _ in range(3)]
    assert {one.status_code for one in answers} == {201}
    assert len({one.json()["proposal"]["proposal_id"] for one in answers}) == 1
    assert len(admin.get("vic", "/proposals").json()["items"]) == 1

    other = body | {"title": "twice"}
    refused(admin.post("ann", "/proposals", other, idempotency_key=key), 422, "idempotency.reused")
    mine = admin.post("amy", "/proposals", body, idempotency_key=key)
    assert mine.status_code == 201
    assert mine.json()["proposal"]["author"] == f"amy@{REALM}"


def test_what_was_refused_can_be_asked_again_under_its_key(admin: Admin) -> None:
    key, first = str(uuid.uuid4()), active_hash(admin)
    body = {"content_hash": first, "reason": "back"}
    refused(admin.post("oli", "/activations/roll-back", body, idempotency_key=key), 409, "policy.in_force")
    admin.activated()
    assert admin.post("oli", "/activations/roll-back", body, idempotency_key=key).status_code == 201


def test_two_of_the_same_at_a_time_are_not_done_twice(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    body, key = {"title": "busy", "files": admin.files("busy")}, str(uuid.uuid4())
    propose, began, go_on = PolicyDesk.propose, threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        began.set()
        assert go_on.wait(10)
        return propose(*args)

    monkeypatch.setattr(PolicyDesk, "propose", slow)
    with futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(admin.post, "ann", "/proposals", body, idempotency_key=key)
        assert began.wait(10)
        refused(admin.post("ann", "/proposals", body, idempotency_key=key), 409, "idempotency.busy")
        go_on.set()
        assert first.result(10).status_code == 201
    assert admin.post("ann", "/proposals", body, idempotency_key=key).json() == first.result().json()
    assert len(admin.get("vic", "/proposals").json()["items"]) == 1


@pytest.mark.parametrize("key", ["short", "x" * 15, "x" * 129, "with a space in it", "snowman-\u2603-snowman"])
def test_a_key_that_anybody_could_hit_upon_is_none(still_admin: Admin, key: str) -> None:
    headers = {"Authorization": f"Negotiate ann@{REALM}", "X-CI-Bridge-Client": "t", "Idempotency-Key": key.encode()}
    body = {"title": "t", "files": still_admin.files("key")}
    answer = still_admin.web.http.post("/v1/admin/proposals", json=body, headers=headers)  # type: ignore[arg-type]
    refused(answer, 422, "idempotency.key")


def test_who_has_no_role_reads_no_policy(still_admin: Admin) -> None:
    for path in ("/proposals", "/bundles", "/bundles/active", "/activations", "/roles", "/clusters"):
        refused(still_admin.get(NOBODY, path), 403, "caller.role")


@pytest.mark.threat("T38")
def test_a_bundle_may_be_large_and_not_larger(admin: Admin) -> None:
    def sized(mebibytes: int) -> dict[str, str]:
        return {f"part{number}.cedar": "// " + "x" * (1024 * 1024 - 40) + "\n" for number in range(mebibytes)}

    made = admin.post("ann", "/proposals", {"title": "large", "files": sized(4)})
    assert made.status_code == 201, made.text[:200]
    assert len(admin.get("vic", f"/proposals/{made.json()['proposal']['proposal_id']}").content) > 4 * 1024 * 1024
    refused(admin.post("ann", "/proposals", {"title": "larger", "files": sized(5)}), 422, "policy.too_large")
    refused(admin.post("ann", "/proposals", {"title": "too large", "files": sized(7)}), 413, "request.too_large")
    refused(admin.web.api("ann", "POST", "/v1/links", {"reason": "x" * 300_000}), 413, "request.too_large")


@pytest.mark.threat("T17")
@pytest.mark.parametrize(
    "body",
    [
        b'{"title": "t", "files": {"limits.toml": "\\ud800"}}',
        b'{"title": "t", "files": {"\\udfff": ""}}',
        b'{"title": "\\ud800", "files": {}}',
        b'{"title": "t", "files": {"../limits.toml": ""}}',
        b'{"title": "t", "files": {"limits.toml": "\\u0000"}}',
        b'{"title": "t", "files": {"limits.toml": "# \\u202e"}}',
        b'{"title": "t", "files": {"limits.toml": 1}}',
        b'{"title": "a\\nb", "files": {"limits.toml": "", "limits.toml": 1}}',
        b"[" * 100_000,
        b'{"title": "t", "files": ' * 5_000,
        b"\xff\xfe",
        b"null",
        b"",
    ],
    ids=lambda body: repr(body[:60]),
)
@pytest.mark.parametrize("path", ["/proposals", "/bundles/validate", "/bundles/diff", "/activations/break-glass"])
def test_what_is_no_bundle_breaks_nothing(still_admin: Admin, path: str, body: bytes) -> None:
    headers = {"X-CI-Bridge-Client": "t", "Content-Type": "application/json"} | ticket("oli")
    answer = still_admin.web.http.post(f"/v1/admin{path}", content=body, headers=headers)
    assert answer.status_code in (400, 403, 422), answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"
