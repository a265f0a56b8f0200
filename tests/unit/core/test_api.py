"""The HTTP API: every route is guarded, every answer that says no is a problem document and tells nothing else."""

from __future__ import annotations

import base64
import concurrent.futures as futures
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from bench import Broker, wait_until
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from web_example import bearer, body_of, client_of, in_process, make_parts, problem, serving, settings

from bridge.api.app import Parts, make_app
from bridge.api.bounds import MAX_BODY_BYTES, MAX_SCRIPT_BYTES
from bridge.api.callers import credential, header_only
from bridge.api.executor import live_run
from bridge.api.node import negotiate_token
from bridge.broker.client import BrokerClient
from bridge.errors import Outage
from bridge.nodeclaims import AT_ONCE
from runner import wire
from tests.fakes import FakeCluster, FakeScript

ONE = "1" * 32
NODE = "host/node1.realm.test@REALM.TEST"
NODE2 = "host/node2.realm.test@REALM.TEST"
PUBLIC = {
    ("POST", "/v1/runs"): "the evidence in its body is what admission judges",
    ("GET", "/health/live"): "says nothing",
    ("GET", "/health/ready"): "says nothing",
}


@pytest.fixture
def parts(broker: Broker, client: BrokerClient, cluster: FakeCluster) -> Parts:
    """What the application is made of."""
    return make_parts(broker.ledger, client, cluster)


@pytest.fixture
def http(parts: Parts) -> Iterator[httpx2.Client]:
    """Somebody without credentials."""
    with in_process(parts) as client:
        yield client


@pytest.fixture
def run(http: httpx2.Client, broker: Broker) -> dict[str, Any]:
    """Alice's run, as the executor knows it."""
    answer = http.post("/v1/runs", json=body_of(broker.evidence()))
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _routes(app: FastAPI) -> list[APIRoute]:
    return [route for route in _flat(app.routes) if isinstance(route, APIRoute)]


def _flat(routes: Any) -> Iterator[Any]:
    for route in routes:
        inner = getattr(route, "routes", None)
        if inner is None and hasattr(route, "original_router"):
            inner = route.original_router.routes
        yield from _flat(inner) if inner and not isinstance(route, APIRoute) else [route]


def _calls(dependant: Dependant) -> Iterator[Any]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)


def _unguarded(app: FastAPI) -> set[tuple[str, str]]:
    return {
        (method, route.path)
        for route in _routes(app)
        for method in route.methods
        if not {live_run, negotiate_token, credential, header_only} & set(_calls(route.dependant))
    }


@pytest.mark.threat("T39")
def test_every_route_is_authorised_or_public_by_name(parts: Parts) -> None:
    app = make_app(settings(), parts)
    assert len(_routes(app)) >= 9
    assert {route for route in _flat(app.routes) if not isinstance(route, APIRoute)} == set()
    assert _unguarded(app) == PUBLIC.keys()


def unguarded_page() -> dict[str, str]:
    """A route that somebody forgot to guard."""
    return {}


@pytest.mark.threat("T39")
def test_the_walk_over_the_routes_finds_an_unguarded_one(parts: Parts) -> None:
    app = make_app(settings(), parts)
    app.add_api_route("/v1/runs/{run_id}/secrets", unguarded_page, methods=["GET"])
    assert _unguarded(app) == PUBLIC.keys() | {("GET", "/v1/runs/{run_id}/secrets")}


EXECUTOR_CALLS = [
    ("PUT", f"/stages/{ONE}?stage=get_sources"),
    ("GET", f"/stages/{ONE}/events?after=0"),
    ("POST", f"/stages/{ONE}/cancel"),
    ("POST", "/finish"),
]


@pytest.mark.threat("T50")
@pytest.mark.parametrize(("method", "path"), EXECUTOR_CALLS, ids=[path for _, path in EXECUTOR_CALLS])
def test_all_who_do_not_hold_the_session_get_the_same_bytes(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any], method: str, path: str
) -> None:
    other = http.post("/v1/runs", json=body_of(broker.evidence(job_id=302, user_id=102))).json()
    ended = http.post("/v1/runs", json=body_of(broker.evidence(job_id=303, user_id=102))).json()
    http.post(f"/v1/runs/{ended['run_id']}/finish", headers=bearer(ended))
    secret = run["session"]
    attempts: list[tuple[str, dict[str, str]]] = [
        (run["run_id"], {}),
        (run["run_id"], {"authorization": "Bearer"}),
        (run["run_id"], {"authorization": f"Basic {secret}"}),
        (run["run_id"], {"authorization": secret}),
        (run["run_id"], {"authorization": f"bearer {secret}"}),
        (run["run_id"], {"authorization": f"Bearer {secret[:-1]}"}),
        (run["run_id"], {"authorization": f"Bearer {secret} "[:-1] + "x"}),
        (run["run_id"], bearer(other)),
        (ended["run_id"], bearer(other)),
        ("z" * 26, {"authorization": f"Bearer {secret}"}),
        (run["run_id"], {"authorization": f"Negotiate {secret}"}),
    ]
    seen = set()
    for run_id, headers in attempts:
        answer = http.request(method, f"/v1/runs/{run_id}{path}", headers=headers)
        found = problem(answer, 401, "session.invalid")
        seen.add((answer.text.replace(found["reference"], "REF"), answer.headers["www-authenticate"]))
    assert len(seen) == 1
    assert cluster.called("run") == cluster.called("destroy")[1:] == []


def _running_job(http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any]) -> int:
    http.put(f"/v1/runs/{run['run_id']}/stages/{ONE}?stage=build_script", headers=bearer(run), content=b"make")
    job = cluster.wait_job()
    cluster.run(job.job_id)
    wait_until(lambda: broker.records(type="stage")[-1]["detail"]["state"] == "running")
    return job.job_id


def test_a_node_gets_the_tickets_of_a_job_that_runs_there(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any]
) -> None:
    job_id = _running_job(http, broker, cluster, run)
    body = {"slurm_job_id": job_id, "uid": 20001, "node": "node1"}
    answer = http.post("/v1/node/tickets", json=body, headers={"authorization": f"Negotiate {NODE}"})

    assert answer.status_code == 200
    assert answer.headers["x-ci-bridge-cache"] == "FILE:/tmp/krb5cc_20001"
    reply = answer.headers["www-authenticate"].removeprefix("Negotiate ")
    assert base64.b64decode(reply).decode() == f"reply to {NODE}"
    assert answer.content.startswith(b"\x05\x04")
    assert b"alice" in answer.content
    assert b"krbtgt" not in answer.content
    done = http.post("/v1/node/released", json=body, headers={"authorization": f"Negotiate {NODE}"})
    assert (done.status_code, done.content) == (204, b"")


@pytest.mark.threat("T37")
@pytest.mark.parametrize(
    ("changes", "principal", "status", "code"),
    [
        ({"slurm_job_id": 1}, NODE, 404, "node.not_ours"),
        ({"uid": 20002}, NODE, 404, "node.not_ours"),
        ({"node": "node2"}, NODE, 403, "node.wrong_node"),
        ({"node": "node2"}, NODE2, 403, "node.not_running_here"),
        ({}, "alice@REALM.TEST", 403, "node.not_a_host"),
        ({"uid": 0}, NODE, 422, "request.invalid"),
        ({"slurm_job_id": "4711"}, NODE, 422, "request.invalid"),
        ({"node": "node1;id"}, NODE, 422, "request.invalid"),
        ({"account": "root"}, NODE, 422, "request.invalid"),
    ],
    ids=str,
)
def test_a_node_gets_nothing_else(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any],
    changes: dict[str, object], principal: str, status: int, code: str,
) -> None:  # fmt: skip
    job_id = _running_job(http, broker, cluster, run)
    made = len(broker.impersonator.asked)
    body = {"slurm_job_id": job_id, "uid": 20001, "node": "node1"} | changes
    answer = http.post("/v1/node/tickets", json=body, headers={"authorization": f"Negotiate {principal}"})
    problem(answer, status, code)
    assert len(broker.impersonator.asked) == made


@pytest.mark.threat("T37")
@pytest.mark.parametrize("state", ["PENDING", "COMPLETED", "CANCELLED"])
def test_a_node_gets_nothing_for_a_job_that_slurm_does_not_call_running(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any], parts: Parts, state: str
) -> None:
    job_id = _running_job(http, broker, cluster, run)
    parts.poller.stop(5.0)
    cluster.update(job_id, state=state)
    body = {"slurm_job_id": job_id, "uid": 20001, "node": "node1"}
    answer = http.post("/v1/node/tickets", json=body, headers={"authorization": f"Negotiate {NODE}"})
    problem(answer, 403, "node.not_running_here")


@pytest.mark.threat("T37")
@pytest.mark.threat("T38")
def test_a_node_that_asks_without_end_is_told_to_wait_and_asks_neither_slurm_nor_the_kdc(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any], parts: Parts
) -> None:
    job_id = _running_job(http, broker, cluster, run)
    parts.poller.stop(5.0)
    body, headers = {"slurm_job_id": job_id, "uid": 20001, "node": "node1"}, {"authorization": f"Negotiate {NODE}"}
    while broker.requests.take(NODE):
        pass
    looks, made = len(cluster.called("state")), len(broker.impersonator.asked)
    answer = http.post("/v1/node/tickets", json=body, headers=headers)

    problem(answer, 429, "node.too_many")
    assert answer.headers["retry-after"] == "2"
    assert (len(cluster.called("state")), len(broker.impersonator.asked)) == (looks, made)
    broker.moment += 1
    assert http.post("/v1/node/tickets", json=body, headers=headers).status_code == 200
    assert len(cluster.called("state")) == looks + 1


def test_what_slurm_does_not_confirm_is_not_counted_as_under_way(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any]
) -> None:
    job_id = _running_job(http, broker, cluster, run)
    body = {"slurm_job_id": job_id, "uid": 20001, "node": "node2"}
    for _ in range(AT_ONCE + 1):
        answer = http.post("/v1/node/tickets", json=body, headers={"authorization": f"Negotiate {NODE2}"})
        problem(answer, 403, "node.not_running_here")


def test_a_whole_stage_over_http(
    http: httpx2.Client, broker: Broker, cluster: FakeCluster, run: dict[str, Any]
) -> None:
    path, headers = f"/v1/runs/{run['run_id']}/stages/{ONE}", bearer(run)
    started = http.put(f"{path}?stage=build_script", headers=headers, content=b"make\n")
    assert (started.status_code, started.json()) == (202, {"stage": "build_script", "kind": "slurm"})
    assert http.put(f"{path}?stage=build_script", headers=headers, content=b"make\n").status_code == 202
    job = cluster.wait_job()
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"made\n")
    cluster.end(job.job_id, "FAILED", 2)

    after, log, end = 0, b"", None
    while end is None:
        answer = http.get(f"{path}/events?after={after}&offset={len(log)}", headers=headers)
        assert answer.status_code == 200
        for header, data in wire.Decoder().feed(answer.content):
            after, log = header["n"], log + data
            end = header if header["kind"] == "end" else end
    assert (end["outcome"], end["exit_code"], log) == ("script_failed", 2, b"made\n")
    assert http.post(f"/v1/runs/{run['run_id']}/finish", headers=headers).json() == {"cancelled": [], "complete": True}
    assert http.post(f"/v1/runs/{run['run_id']}/finish", headers=headers).json() == {"cancelled": [], "complete": True}


def test_events_after_a_restart_go_on_where_the_executor_was(
    http: httpx2.Client, broker: Broker, client: BrokerClient, cluster: FakeCluster, run: dict[str, Any]
) -> None:
    path, headers = f"/v1/runs/{run['run_id']}/stages/{ONE}", bearer(run)
    job_id = _running_job(http, broker, cluster, run)
    cluster.write(job_id, b"seen\nunseen\n")
    with in_process(make_parts(broker.ledger, client, cluster)) as second:
        answer = second.get(f"{path}/events?after=17&offset=5", headers=headers)
        (first, data), *_ = wire.Decoder().feed(answer.content)
        assert (first["n"], data) == (18, b"unseen\n")


def test_a_cancel_after_a_restart_keeps_the_executors_place(
    http: httpx2.Client, broker: Broker, client: BrokerClient, cluster: FakeCluster, run: dict[str, Any]
) -> None:
    path, headers = f"/v1/runs/{run['run_id']}/stages/{ONE}", bearer(run)
    job_id = _running_job(http, broker, cluster, run)
    cluster.write(job_id, b"seen\nunseen\n")
    with in_process(make_parts(broker.ledger, client, cluster)) as second:
        assert second.post(f"{path}/cancel?after=17&offset=5", headers=headers).status_code == 202
        log, after, end = b"", 17, None
        while end is None:
            answer = second.get(f"{path}/events?after={after}&offset={5 + len(log)}", headers=headers)
            for header, data in wire.Decoder().feed(answer.content):
                assert header["n"] > after
                after, log = header["n"], log + data
                end = header if header["kind"] == "end" else end
        assert (end["outcome"], log) == ("cancelled", b"unseen\n")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("PUT", f"/stages/{ONE}?stage=rm_rf", 422, "stage.unknown"),
        ("PUT", f"/stages/{ONE}?stage=step_..%2Fx", 422, "stage.unknown"),
        ("PUT", f"/stages/{ONE}?stage=step_", 422, "stage.unknown"),
        ("PUT", f"/stages/{ONE}?stage=", 422, "stage.unknown"),
        ("PUT", f"/stages/{ONE}?stage=step_{'x' * 80}", 422, "request.invalid"),
        ("PUT", f"/stages/{ONE}", 422, "request.invalid"),
        ("PUT", "/stages/short?stage=get_sources", 422, "request.invalid"),
        ("PUT", f"/stages/{ONE[:-1]}A?stage=get_sources", 422, "request.invalid"),
        ("GET", f"/stages/{ONE}/events?after=0", 404, "stage.unknown"),
        ("GET", f"/stages/{ONE}/events?after=-1", 422, "request.invalid"),
        ("GET", f"/stages/{ONE}/events?after=0&offset=x", 422, "request.invalid"),
        ("GET", f"/stages/{ONE}/events", 422, "request.invalid"),
        ("POST", f"/stages/{ONE}/cancel", 404, "stage.unknown"),
        ("DELETE", "/finish", 405, "request.refused"),
    ],
)
def test_a_malformed_call_is_refused(
    http: httpx2.Client, cluster: FakeCluster, run: dict[str, Any], method: str, path: str, status: int, code: str
) -> None:
    problem(http.request(method, f"/v1/runs/{run['run_id']}{path}", headers=bearer(run)), status, code)
    assert cluster.calls == []


def test_a_refusal_of_the_broker_arrives_with_its_reference(http: httpx2.Client, broker: Broker) -> None:
    answer = http.post("/v1/runs", json=body_of(broker.evidence(user_id=103)))
    found = problem(answer, 403, "account.not_mapped")
    (record,) = broker.records(phase="denied")
    assert record["reference"] == found["reference"]


def test_an_outage_says_when_to_come_back(http: httpx2.Client, broker: Broker) -> None:
    broker.jobs.error = Outage("gitlab.unreachable", "GitLab is away.", "Retry.", url="https://secret.test")
    answer = http.post("/v1/runs", json=body_of(broker.evidence()))
    problem(answer, 503, "gitlab.unreachable")
    assert answer.headers["retry-after"] == "5"
    assert "secret.test" not in answer.text


@pytest.mark.threat("T46")
def test_what_breaks_inside_leaves_no_detail(
    http: httpx2.Client, parts: Parts, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("correct horse battery staple")

    monkeypatch.setattr(parts.runs, "finish", broken)
    answer = http.post(f"/v1/runs/{run['run_id']}/finish", headers=bearer(run))
    problem(answer, 500, "bridge.defect")
    assert "horse" not in answer.text
    assert "ValueError" not in answer.text


@pytest.mark.parametrize("name", ["code", "status", "reference", "event", "level", "context", "detail"])
def test_no_context_of_an_error_breaks_its_answer(
    http: httpx2.Client, parts: Parts, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error = Outage("some.code", "T.", "R.")
    error.context = {name: "7F3K-9QXM-2DTB"}

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(parts.runs, "finish", broken)
    problem(http.post(f"/v1/runs/{run['run_id']}/finish", headers=bearer(run)), 503, "some.code")


@pytest.mark.threat("T38")
@pytest.mark.parametrize("kind", ["evidence", "script"])
def test_a_body_that_grows_too_long_is_cut(
    http: httpx2.Client, cluster: FakeCluster, run: dict[str, Any], kind: str
) -> None:
    bound = MAX_BODY_BYTES if kind == "evidence" else MAX_SCRIPT_BYTES

    def endless() -> Iterator[bytes]:
        for _ in range(bound // 65536 + 2):
            yield b" " * 65536

    if kind == "evidence":
        answer = http.post("/v1/runs", content=endless(), headers={"content-type": "application/json"})
    else:
        path = f"/v1/runs/{run['run_id']}/stages/{ONE}?stage=get_sources"
        answer = http.put(path, content=endless(), headers=bearer(run))
    problem(answer, 413, "request.too_large")
    assert cluster.called("run") == []


def test_the_longest_script_is_taken(http: httpx2.Client, cluster: FakeCluster, run: dict[str, Any]) -> None:
    cluster.scripts.append(FakeScript())
    script = b"#" * MAX_SCRIPT_BYTES
    path = f"/v1/runs/{run['run_id']}/stages/{ONE}?stage=get_sources"
    assert http.put(path, content=script, headers=bearer(run)).status_code == 202
    wait_until(lambda: cluster.called("run"))
    assert cluster.called("run") == [script]


def test_health_tells_life_from_readiness(http: httpx2.Client, broker: Broker) -> None:
    assert http.get("/health/ready").json() == {"status": "ready"}
    with broker.engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE audit_head")
        connection.commit()
    assert http.get("/health/live").status_code == 200
    problem(http.get("/health/ready"), 503, "db.unavailable")


def test_a_long_poll_holds_up_nobody(parts: Parts, cluster: FakeCluster, broker: Broker) -> None:
    def wait(url: str, path: str, run: dict[str, Any]) -> int:
        with client_of(url) as client:
            return client.get(path, headers=bearer(run)).status_code

    with serving(parts) as url, client_of(url) as http, futures.ThreadPoolExecutor(60) as pool:
        run = http.post("/v1/runs", json=body_of(broker.evidence())).json()
        job_id = _running_job(http, broker, cluster, run)
        path = f"/v1/runs/{run['run_id']}/stages/{ONE}/events?after=1000&offset=0"
        waiting = [pool.submit(wait, url, path, run) for _ in range(60)]
        again = f"/v1/runs/{run['run_id']}/stages/{ONE}?stage=build_script"
        for _ in range(20):
            assert http.put(again, headers=bearer(run), content=b"make", timeout=10).status_code == 202
        cluster.end(job_id)
        assert {one.result(timeout=10) for one in waiting} == {200}


def test_nothing_of_the_session_is_in_the_answers(http: httpx2.Client, run: dict[str, Any]) -> None:
    finished = http.post(f"/v1/runs/{run['run_id']}/finish", headers=bearer(run))
    assert run["session"] not in finished.text
    assert len(base64.urlsafe_b64decode(run["session"] + "=")) == 32
    assert "ccache" not in json.dumps(run)
