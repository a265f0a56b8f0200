"""What the admin API lists and tells: runs, decisions, the audit log, bundles and what they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import update

from bridge.audit.merkle import leaf_hash
from bridge.db.engine import WRITES
from bridge.db.schema import bundles
from bridge.model import RunState
from bridge.runs.killing import KillWatch
from bridge.runs.stopping import Stopper
from bridge.standing import RegisterCache
from tests.api.admin_site import NOBODY, Admin
from tests.api.people_web import refused
from tests.fakes import REALM
from tests.unit.core.bench import ISSUER, wait_until
from tests.unit.core.bench import refused as raised


@pytest.fixture(scope="module")
def worked(still_admin: Admin) -> Admin:
    """A bridge with five runs, by two people, and two refusals."""
    broker = still_admin.web.broker
    for job_id, user_id in ((301, 101), (302, 101), (303, 102), (304, 101), (305, 102)):
        broker.admission.admit(broker.evidence(job_id, user_id))
    raised(lambda: broker.admission.admit(broker.evidence(306, 999)))
    raised(lambda: broker.admission.admit(broker.evidence(307, 101, scheduler_parameters="--nodes=9999")))
    return still_admin


def everything(admin: Admin, who: str, path: str) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    found, cursor, join = [], None, "&" if "?" in path else "?"
    for _ in range(100):
        answer = admin.get(who, path + (f"{join}cursor={cursor}" if cursor is not None else ""))
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 2, 5, 200])
def test_pages_of_runs_have_each_run_once(worked: Admin, limit: int) -> None:
    jobs = [one["job_id"] for one in everything(worked, "vic", f"/runs?limit={limit}")]
    assert jobs == [305, 304, 303, 302, 301]


@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ("account=alice", [304, 302, 301]),
        (f"issuer={ISSUER}&user_id=102", [305, 303]),
        ("issuer=https://elsewhere.test&user_id=102", []),
        ("project_id=7", [305, 304, 303, 302, 301]),
        ("project_id=8", []),
        ("state=ended", []),
        ("state=admitted&account=bob", [305, 303]),
        ("cluster=no-such", []),
        ("since=2001-01-01T00:00:00Z", [305, 304, 303, 302, 301]),
        ("since=2999-01-01T00:00:00Z", []),
    ],
)
def test_runs_are_filtered(worked: Admin, query: str, jobs: list[int]) -> None:
    assert [one["job_id"] for one in everything(worked, "vic", f"/runs?limit=2&{query}")] == jobs


def test_a_run_is_told_with_its_grant_and_its_records(worked: Admin) -> None:
    run_id = worked.get("vic", "/runs?account=bob").json()["items"][0]["run_id"]
    told = worked.get("vic", f"/runs/{run_id}").json()
    assert (told["run"]["account"], told["grant"]["project_path"]) == ("bob", "chem/water")
    assert [(one["type"], one["phase"]) for one in told["timeline"]] == [("admission", "intent"), ("admission", "ok")]
    assert told["grant"]["bundle_hash"] == worked.web.broker.policy.bundle.content_hash
    assert "session" not in json.dumps(told)
    refused(worked.get("vic", f"/runs/{'a' * 26}"), 404, "run.unknown")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["limits.exceeded", "account.not_mapped", None, None, None, None, None]),
        ("decision=denied", ["limits.exceeded", "account.not_mapped"]),
        ("code=account.not_mapped", ["account.not_mapped"]),
        ("user_id=102", [None, None]),
        ("account=alice&decision=allowed", [None, None, None]),
        ("since=2999-01-01T00:00:00Z", []),
    ],
)
def test_decisions_are_listed_by_what_they_say(worked: Admin, query: str, found: list[str | None]) -> None:
    assert [one["code"] for one in everything(worked, "vic", f"/decisions?limit=2&{query}")] == found


def test_a_decision_is_explained_by_its_reference(worked: Admin) -> None:
    reference = worked.get("vic", "/decisions?decision=allowed").json()["items"][0]["reference"]
    told = worked.get("vic", f"/decisions/{reference}").json()
    assert (told["decision"]["account"], told["explanation"]["decision"]) == ("bob", "allowed")
    assert told["explanation"]["permits"][0]["conditions"]
    denied = worked.get("vic", "/decisions?decision=denied").json()["items"][0]["reference"]
    told = worked.get("vic", f"/decisions/{denied}").json()
    assert told["decision"]["code"] == told["explanation"]["decision"] == "limits.exceeded"
    assert told["explanation"]["limits"]
    refused(worked.get("vic", "/decisions/0000-0000-0000"), 404, "decision.unknown")


def test_a_made_up_job_is_answered_and_nothing_comes_of_it(worked: Admin) -> None:
    before = worked.web.broker.records()
    answer = worked.post("vic", "/decisions", {"issuer": ISSUER, "user_id": 999})
    assert (answer.status_code, answer.json()["decision"]) == (200, "account.not_mapped")
    body = {"issuer": ISSUER, "user_id": 101, "at": "2026-06-01T12:00:00+02:00", "asked": {"nodes": 9999}}
    told = worked.post("vic", "/decisions", body).json()
    assert (told["decision"], told["account"]) == ("limits.exceeded", "alice")
    assert told["limits"][0]["asked"] == 9999
    assert worked.web.broker.records() == before
    refused(worked.post("vic", "/decisions", body | {"at": "tomorrow"}), 422, "request.invalid")


@pytest.mark.parametrize("limit", [1, 3, 200])
def test_auditors_read_the_log_as_it_was_written(worked: Admin, limit: int) -> None:
    entries = everything(worked, "aud", f"/audit/entries?limit={limit}")
    head = worked.get("aud", "/audit/head").json()
    assert [one["seq"] for one in entries] == list(range(head["size"]))
    assert entries[-1]["root"] == head["root"]
    with worked.web.broker.ledger.read() as view:
        assert [one["leaf_hash"] for one in entries] == [leaf_hash(one.leaf).hex() for one in view.entries()]


@pytest.mark.parametrize(
    ("query", "count"),
    [("type=admission&phase=denied", 2), ("job_id=301", 2), ("type=kill", 0), ("since=2999-01-01T00:00:00Z", 0)],
)
def test_auditors_find_entries(worked: Admin, query: str, count: int) -> None:
    assert len(everything(worked, "aud", f"/audit/entries?limit=1&{query}")) == count


def test_everybody_with_a_role_sees_what_there_is(worked: Admin) -> None:
    assert worked.get(NOBODY, "/me").json() == {"principal": f"{NOBODY}@{REALM}", "account": NOBODY, "roles": []}
    clusters = worked.get("vic", "/clusters").json()
    assert clusters["default"] in [one["name"] for one in clusters["clusters"]]
    runners = worked.get("vic", "/runners").json()["items"]
    assert [(one["issuer"], one["runner_id"], one["runs"]) for one in runners] == [(ISSUER, 1, 5)]
    members = {one["principal"]: one["roles"] for one in worked.get("vic", "/roles").json()["members"]}
    assert members[f"amy@{REALM}"] == ["approver", "author"]


def test_bundles_say_what_they_mean(worked: Admin) -> None:
    active = worked.get("vic", "/bundles/active").json()["active"]["content_hash"]
    assert worked.get("vic", "/bundles/active/validation").json()["ok"] is True
    assert worked.get("vic", f"/bundles/{active}/test").json()["ok"] is True
    matrix = worked.get("vic", "/bundles/active/matrix").json()
    assert {one["account"] for one in matrix["people"]} >= {"alice", "bob"}
    who = worked.get("vic", "/bundles/active/who-can?account=alice").json()["people"]
    assert {one["account"] for one in who} == {"alice"}
    what = worked.get("vic", f"/bundles/active/what-can?user_id=102&issuer={ISSUER}").json()["people"]
    assert {one["account"] for one in what} == {"bob", "svc-chem"}
    assert worked.get("vic", "/bundles/active/diff").json()["empty"] is True
    replay = worked.get("vic", "/bundles/active/replay?days=1").json()
    assert (replay["asked"], replay["turns"]) == (6, [])
    assert worked.get("vic", "/bundles/active/impact").json()["runs"] == []
    refused(worked.get("vic", f"/bundles/{'0' * 64}/matrix"), 404, "policy.no_bundle")


def test_files_that_nobody_kept_are_looked_at(worked: Admin) -> None:
    files = worked.files()
    rows = files["accounts.toml"].replace("user_id = 102", "user_id = 777")
    assert rows != files["accounts.toml"]
    changed = worked.post("ann", "/bundles/diff", {"files": files | {"accounts.toml": rows}}).json()
    assert changed["empty"] is False
    assert any(line.startswith("!") for line in changed["lines"])
    broken = worked.post("ann", "/bundles/validate", {"files": files | {"limits.toml": "["}}).json()
    assert (broken["ok"], broken["problems"][0].partition(":")[0]) == (False, "limits.toml")
    refused(worked.post("ann", "/bundles/test", {"files": files | {"limits.toml": "["}}), 422, "policy.invalid")
    assert worked.post("ann", "/bundles/test", {"files": files}).json()["ok"] is True
    replay = worked.post("ann", "/bundles/replay", {"files": files | {"accounts.toml": rows}, "days": 1}).json()
    assert {(turn["user_id"], turn["after"]) for turn in replay["turns"]} == {(102, "account.not_mapped")}
    hidden = files | {"limits.toml": files["limits.toml"] + "# \u202e\n"}
    assert worked.post("ann", "/bundles/validate", {"files": hidden}).json()["ok"] is False


def test_kept_bundles_are_listed_and_compared(admin: Admin) -> None:
    one, two = (admin.proposed(note=note)["content_hash"] for note in ("one", "two"))
    assert [row["content_hash"] for row in everything(admin, "vic", "/bundles?limit=1")] == [two, one]
    assert admin.get("vic", f"/bundles/{one}").json()["files"] == admin.files("one")
    assert admin.get("vic", f"/bundles/{one}/diff?against={two}").json()["empty"] is True
    broker = admin.web.broker
    broker.admission.admit(broker.evidence())
    files = admin.files("nobody") | {
        "accounts.toml": admin.files()["accounts.toml"].replace("user_id = 101", "user_id = 777")
    }
    body = {"title": "without alice", "files": files}
    none = admin.post("ann", "/proposals", body).json()["proposal"]["content_hash"]
    replay = admin.get("vic", f"/bundles/{none}/replay").json()
    assert [(turn["before"], turn["after"]) for turn in replay["turns"]] == [("allowed", "account.not_mapped")]
    assert [run["code"] for run in admin.get("vic", f"/bundles/{none}/impact").json()["runs"]] == ["account.not_mapped"]


@pytest.mark.threat("T44")
def test_a_bundle_that_was_changed_in_the_database_means_nothing(admin: Admin) -> None:
    named, engine = admin.proposed()["content_hash"], admin.web.broker.engine
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        other = json.dumps(admin.files("quite another"))
        connection.execute(update(bundles).where(bundles.c.content_hash == named).values(files=other))
    for what in ("", "/matrix", "/diff", "/test", "/validation", "/impact"):
        refused(admin.get("vic", f"/bundles/{named}{what}"), 500, "policy.content")


def test_an_operator_cancels_a_run_and_it_ends(admin: Admin) -> None:
    web, broker = admin.web, admin.web.broker
    runs = web.http.app.state.runs  # type: ignore[attr-defined]
    stopper = Stopper(runs)
    kills = KillWatch(broker.ledger, RegisterCache(), runs, stopper)
    opened = runs.open(broker.evidence())
    path = f"/runs/{opened['run_id']}/cancel"
    refused(admin.post("vic", path, {"reason": "r"}), 403, "caller.role")
    refused(admin.post("oli", path, {"reason": " "}), 422, "run.cancel_reason")
    kills.look()
    (live,) = runs.held()
    assert live.stopped is None

    cancelled = admin.post("oli", path, {"reason": "runs wild"})
    assert (cancelled.status_code, cancelled.json()["cancel"]["cancelled_by"]) == (202, f"oli@{REALM}")
    assert admin.post("ola", path, {"reason": "me too"}).json() == cancelled.json()
    kills.look()
    assert live.stopped is not None
    assert live.stopped.code == "run.cancelled"

    def ended() -> bool:
        with broker.ledger.read() as view:
            return view.run(opened["run_id"]).state is RunState.ENDED

    wait_until(ended, "the end")
    stopper.close()
    (record,) = broker.records(
        type="run",
        phase="ok",
        run_id=opened["run_id"],
        detail={"act": "cancel", "by": f"oli@{REALM}", "method": "negotiate", "reason": "runs wild"},
    )
    assert record["run_id"] == opened["run_id"]
    assert admin.get("vic", f"/runs/{opened['run_id']}").json()["cancel"]["reason"] == "runs wild"
    refused(admin.post("oli", path, {"reason": "again"}), 409, "run.ended")
    refused(admin.post("oli", f"/runs/{'b' * 26}/cancel", {"reason": "r"}), 404, "run.unknown")


@pytest.mark.threat("T46")
def test_an_operator_reads_the_end_of_a_log_without_the_runs_secrets(admin: Admin) -> None:
    web, broker = admin.web, admin.web.broker
    runs = web.http.app.state.runs  # type: ignore[attr-defined]
    opened = runs.open(broker.evidence())
    live = runs.authenticate(opened["run_id"], opened["session"])
    task = runs.start_stage(live, "0" * 32, "get_sources", b"true")
    task.feed.log(b"x" * 100_000 + b"\nhello\ntoken " + live.job_token.encode() + b" " + opened["session"].encode())
    path = f"/runs/{opened['run_id']}/log"
    for who in ("vic", "aud", "ann", NOBODY):
        refused(admin.get(who, path), 403, "caller.role")
    answer = admin.get("oli", path)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert b"hello\ntoken [hidden] [hidden]" in answer.content
    assert len(answer.content) <= 64 * 1024
    assert broker.records(phase="event", type="run")[-1]["detail"] == {"act": "log_read", "by": f"oli@{REALM}"}
    refused(admin.get("oli", f"/runs/{'c' * 26}/log"), 404, "run.log_elsewhere")
