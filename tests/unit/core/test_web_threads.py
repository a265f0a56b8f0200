"""Callers of web who wait, wait in threads of their kind: whatever one kind waits for, all others are answered."""

from __future__ import annotations

import concurrent.futures as futures
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from bench import Broker, wait_until
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from web_example import bearer, body_of, client_of, make_parts, problem, serving, settings

from bridge.api.app import PAGES, ROUTERS, Parts, make_app
from bridge.api.callers import PEOPLE_AT_ONCE
from bridge.api.executor import live_run
from bridge.api.threads import ADMISSIONS_AT_ONCE, NODES_AT_ONCE, PROBES_AT_ONCE, SLOW_CALLS
from bridge.broker.client import BrokerClient
from bridge.broker.server import MAX_CONNECTIONS
from bridge.kerberos.deadline import DEFAULT_SLOTS
from bridge.nodeclaims import AT_ONCE
from tests.fakes import FakeCluster, FakeScript

BUILD, OTHER, HELD = "1" * 32, "2" * 32, "3" * 32
FIRST_JOB = 4711
SHARED = 40
"""Threads that anyio has for whoever names no limiter."""

HOST = {"authorization": "Negotiate host/node1.realm.test@REALM.TEST"}
WAITING_HOST = {"authorization": "Negotiate host/node2.realm.test@REALM.TEST"}
ALICE, BOB = ({"authorization": f"Negotiate {name}@REALM.TEST"} for name in ("alice", "bob"))
KINDS = {
    "prologs": NODES_AT_ONCE,
    "epilogs": NODES_AT_ONCE,
    "admissions": ADMISSIONS_AT_ONCE,
    "calls of runs": SHARED,
    "people": PEOPLE_AT_ONCE,
    "probes": PROBES_AT_ONCE,
    "ends of runs": SLOW_CALLS,
}
"""In the order in which they are answered: after the end of the job, its node would get no tickets."""

NODES = {"prologs", "epilogs"}
WAIT_TOO = {"prologs": {"epilogs"}, "epilogs": {"prologs"}, "calls of runs": {"ends of runs"}}
"""Nodes have one share; and whoever ends a run shows its session first, as in all calls of runs."""


@dataclass
class Gate:
    """Where callers wait until the test lets them go on."""

    inside: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    opened: threading.Event = field(default_factory=threading.Event)

    def before(self, inner: Callable[..., Any], waits: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
        """``inner``, where those of whom ``waits`` is true wait first."""

        def gated(*arguments: Any, **names: Any) -> Any:
            if waits(*arguments):
                self.inside.release()
                assert self.opened.wait(60)
            return inner(*arguments, **names)

        return gated


@pytest.fixture
def patient(broker: Broker, short_path: Path) -> Iterator[BrokerClient]:
    """The broker, as web sees it; whoever waits for it does so until the end of the test."""
    with broker.serving(short_path / "patient.sock"):
        yield BrokerClient(short_path / "patient.sock", timeout_seconds=60)


@pytest.fixture
def parts(broker: Broker, patient: BrokerClient, cluster: FakeCluster) -> Parts:
    """What the application is made of."""
    return make_parts(broker.ledger, patient, cluster)


@dataclass(frozen=True, slots=True)
class Callers:
    """All that call web, over real HTTP: one of each kind."""

    http: httpx2.Client
    broker: Broker
    run: dict[str, Any]
    job: int
    """The run's, on node1."""

    def stage(self, invocation: str, name: str) -> int:
        """Start a stage."""
        path = f"/v1/runs/{self.run['run_id']}/stages/{invocation}?stage={name}"
        return self.http.put(path, headers=bearer(self.run), content=b"make").status_code

    def events(self) -> int:
        """Follow the stage that runs."""
        return self.get(f"/v1/runs/{self.run['run_id']}/stages/{BUILD}/events?after=0", bearer(self.run))

    def end(self, what: str) -> int:
        """Cancel a stage, or finish the run."""
        return self.http.post(f"/v1/runs/{self.run['run_id']}/{what}", headers=bearer(self.run)).status_code

    def node(self, header: dict[str, str], purpose: str = "tickets") -> int:
        """Ask for tickets as a prolog, or say that they are ``released`` as an epilog."""
        body = {"slurm_job_id": self.job, "uid": 20001, "node": header["authorization"][15:20]}
        return self.http.post(f"/v1/node/{purpose}", json=body, headers=header).status_code

    def admit(self, job_id: int) -> int:
        """Ask for a new job to be admitted."""
        return self.http.post("/v1/runs", json=body_of(self.broker.evidence(job_id, 102))).status_code

    def get(self, path: str, headers: dict[str, str] | None = None) -> int:
        """Read."""
        return self.http.get(path, headers=headers).status_code

    def require_answered(self, kind: str) -> None:
        """Pass where one caller of a kind is answered before the client gives up."""
        if kind == "prologs":
            assert self.node(HOST) == 200
        elif kind == "epilogs":
            assert self.node(HOST, "released") == 204
        elif kind == "admissions":
            assert self.admit(302) == 201
        elif kind == "calls of runs":
            assert (self.stage(OTHER, "get_sources"), self.events()) == (202, 200)
        elif kind == "ends of runs":
            assert self.end(f"stages/{BUILD}/cancel") == 202
        elif kind == "people":
            assert self.get("/v1/me", ALICE) == 200
        else:
            assert self.get("/health/ready") == 200

    def require_refused(self) -> None:
        """Pass where who gets nothing hears of it."""
        problem(self.http.post("/v1/node/tickets", json={}), 401, "negotiate.required")
        problem(self.http.get("/v1/me"), 401, "negotiate.required")
        problem(self.http.post("/v1/runs", json={}), 422, "request.invalid")
        problem(self.http.get("/nowhere"), 404, "request.no_such_page")

    def waiting(self, kind: str, number: int) -> int:
        """A caller whom the gate of the kind holds."""
        if kind in NODES:
            return self.node(WAITING_HOST, "tickets" if kind == "prologs" else "released")
        if kind == "admissions":
            return self.admit(1000 + number)
        if kind == "calls of runs":
            return self.stage(HELD, "get_sources")
        if kind == "ends of runs":
            return self.end("finish")
        return self.get("/v1/me", BOB) if kind == "people" else self.get("/health/ready")


@pytest.fixture
def callers(parts: Parts, broker: Broker, cluster: FakeCluster) -> Iterator[Callers]:
    """Everybody who calls web."""
    cluster.scripts += [FakeScript(), FakeScript()]
    with serving(parts) as url, client_of(url) as http:
        http.timeout = 30.0
        callers = Callers(http, broker, http.post("/v1/runs", json=body_of(broker.evidence())).json(), FIRST_JOB)
        assert callers.stage(BUILD, "build_script") == 202
        assert cluster.wait_job().job_id == FIRST_JOB
        cluster.run(FIRST_JOB)
        wait_until(lambda: broker.records(type="stage")[-1]["detail"]["state"] == "running")
        yield callers


@contextmanager
def crowd(callers: Callers, kind: str, gate: Gate) -> Iterator[list[futures.Future[int]]]:
    """More callers of a kind than there are threads for it, or threads that name no kind: each holds one, or waits."""
    count = max(KINDS[kind], SHARED) + 4
    base, headers, all_of_them = callers.http.base_url, callers.http.headers, httpx2.Limits(max_connections=count)
    with (
        httpx2.Client(base_url=base, headers=headers, timeout=90, trust_env=False, limits=all_of_them) as http,
        futures.ThreadPoolExecutor(count) as pool,
    ):
        them = replace(callers, http=http)
        held = [pool.submit(them.waiting, kind, number) for number in range(count)]
        try:
            assert all(gate.inside.acquire(timeout=30) for _ in range(KINDS[kind]))
            yield held
        finally:
            gate.opened.set()


def _close(gate: Gate, kind: str, broker: Broker, parts: Parts, patch: pytest.MonkeyPatch) -> None:
    """Have callers of a kind wait: for the broker's acceptor, for GitLab, or in what web does for them."""
    acceptor = broker.tickets.acceptor
    if kind in NODES or kind == "people":
        sign = "host/node2" if kind in NODES else "bob@"
        patch.setattr(acceptor, "accept_header", gate.before(acceptor.accept_header, lambda value, *_: sign in value))
    elif kind == "admissions":
        waits = gate.before(broker.jobs.introspect, lambda issuer, token, facts: facts.job_id >= 1000)
        patch.setattr(broker.jobs, "introspect", waits)
    elif kind == "calls of runs":
        waits = gate.before(parts.runs.start_stage, lambda live, invocation, *_: invocation == HELD)
        patch.setattr(parts.runs, "start_stage", waits)
    elif kind == "ends of runs":
        patch.setattr(parts.runs, "finish", gate.before(lambda live: {"complete": True}))
    else:
        patch.setattr(parts.runs, "check_ready", gate.before(parts.runs.check_ready))


@pytest.mark.threat("T38")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_callers_of_one_kind_that_wait_hold_up_nobody_else(
    callers: Callers, parts: Parts, broker: Broker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    gate = Gate()
    _close(gate, kind, broker, parts, monkeypatch)
    with crowd(callers, kind, gate) as held:
        assert callers.get("/health/live") == 200
        callers.require_refused()
        for other in KINDS:
            if other not in {kind} | WAIT_TOO.get(kind, set()):
                callers.require_answered(other)
        assert not any(one.done() for one in held), "the crowd did not wait all the while"
    answered = {one.result(timeout=60) for one in held}
    if kind in NODES:
        assert answered <= {403, 404, 429}, "the job does not run on node2"


@pytest.mark.threat("T38")
def test_nodes_never_have_all_of_the_broker() -> None:
    assert AT_ONCE < NODES_AT_ONCE, "one node could have them all"
    assert NODES_AT_ONCE <= DEFAULT_SLOTS // 2
    assert NODES_AT_ONCE + ADMISSIONS_AT_ONCE + PEOPLE_AT_ONCE + PROBES_AT_ONCE < MAX_CONNECTIONS


@pytest.mark.threat("T38")
def test_nobody_but_the_calls_of_runs_needs_a_thread_that_all_share(parts: Parts) -> None:
    routes = [route for router in (*ROUTERS, *PAGES) for route in router.routes if isinstance(route, APIRoute)]
    assert len(routes) > 50
    assert {call for route in routes for call in _calls(route.dependant) if not _is_async(call)} == {live_run}
    handlers = make_app(settings(), parts).exception_handlers.values()
    assert [one for one in handlers if one.__module__.startswith("bridge.") and not _is_async(one)] == []


def _calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    if dependant.call is not None:
        yield dependant.call
    for dependency in dependant.dependencies:
        yield from _calls(dependency)


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call)
