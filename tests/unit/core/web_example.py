"""Web's application on a real socket, with real HTTP; settings as a file would give them."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from bench import AUDIENCE, ISSUER, wait_until
from starlette.testclient import TestClient

from bridge.api.app import Parts, make_app
from bridge.api.server import _config
from bridge.broker.client import BrokerClient
from bridge.cluster.poller import Poller
from bridge.cluster.pool import LoginPool
from bridge.cluster.sweeping import Sweeper
from bridge.db.ledger import SqlLedger
from bridge.model import Evidence
from bridge.runs.killing import KillWatch
from bridge.runs.live import Runs, Workshop
from bridge.runs.login_refresh import LoginRefresh
from bridge.runs.nodes import NodeDesk
from bridge.runs.reaping import Reaper
from bridge.runs.stopping import Stopper
from bridge.runs.watch import JobWatch
from bridge.settings import Settings, parse
from bridge.standing import RegisterCache
from tests.fakes import FakeCluster

HOST = "bridge.realm.test"


def document(**changes: Any) -> dict[str, Any]:
    """A whole settings file, parsed."""
    return {
        "policies": "/etc/ci-bridge/policies",
        "issuers": [{"url": ISSUER, "audience": AUDIENCE}],
        "broker": {
            "principal": "ci-bridge/bridge.realm.test",
            "realm": "REALM.TEST",
            "http_service": "HTTP/bridge.realm.test",
        },
        "web": {"public_hosts": [HOST]},
    } | changes


def settings() -> Settings:
    """The same, checked."""
    return parse(document(), Path("bridge.toml"))


def make_parts(ledger: SqlLedger, broker: BrokerClient, cluster: FakeCluster) -> Parts:
    """As ``api.app.make_parts``, with a pretended cluster."""
    pool, poller = LoginPool(cluster.connect), Poller(fast_seconds=0.005, slow_seconds=0.01)
    register = RegisterCache()
    runs = Runs(Workshop(ledger, broker, pool, poller, register, "/usr/lib/ci-bridge/ci-bridge-job"))
    stopper = Stopper(runs)
    kills = KillWatch(ledger, register, runs, stopper, every_seconds=0.01)
    jobs = JobWatch(runs, stopper, {}, every_seconds=15)
    reaper = Reaper(ledger, runs, stopper, {}, silence_seconds=0)
    refresh = LoginRefresh(runs, every_seconds=60)
    return Parts(
        runs, NodeDesk(runs, broker), pool, poller, Sweeper(pool), kills, jobs, reaper, refresh, broker, ledger
    )


@contextmanager
def serving(parts: Parts) -> Iterator[str]:
    """Serve the application as ``api.server`` configures it; gives its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(_config(make_app(settings(), parts), lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    wait_until(lambda: server.started, "the start of the server")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


@contextmanager
def in_process(parts: Parts) -> Iterator[TestClient]:
    """The application without a socket; a hundred times as quick to start."""
    app = make_app(settings(), parts)
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


def client_of(url: str, **headers: str) -> httpx2.Client:
    """A client that calls the bridge by its name."""
    return httpx2.Client(base_url=url, headers={"host": HOST} | headers, timeout=30, trust_env=False)


def body_of(evidence: Evidence) -> dict[str, Any]:
    """The evidence as the executor sends it."""
    return {
        "id_token": evidence.id_token,
        "job_token": evidence.job_token,
        "facts": asdict(evidence.facts),
        "scheduler_parameters": evidence.scheduler_parameters,
        "cluster": evidence.cluster,
    }


def bearer(run: dict[str, Any]) -> dict[str, str]:
    """The run's own credentials."""
    return {"authorization": f"Bearer {run['session']}"}


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a problem document of ours, and nothing else; return it."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    found: dict[str, Any] = answer.json()
    assert found.keys() == {"type", "code", "title", "remedy", "reference", "status"}
    assert (found["code"], found["type"], found["status"]) == (code, f"urn:ci-bridge:{code}", status)
    assert re.fullmatch(r"[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}", found["reference"])
    assert "Traceback" not in answer.text
    assert "server" not in answer.headers
    return found
