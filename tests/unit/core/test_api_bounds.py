"""What web answers to strangers and to what is malformed; nothing of it reaches the broker or the cluster."""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from bench import Broker
from cryptography.hazmat.primitives.asymmetric import rsa
from web_example import HOST, body_of, client_of, make_parts, problem, serving

from bridge.api.bounds import MAX_BODY_BYTES, MAX_SCRIPT_BYTES
from tests.fakes import FakeCluster


@pytest.fixture(scope="module")
def still(signing_key: rsa.RSAPrivateKey) -> Iterator[tuple[str, Broker]]:
    """A server, and its broker, for requests that change nothing."""
    directory = Path(tempfile.mkdtemp(prefix="core-"))
    broker = Broker(f"sqlite:///{directory}/bridge.sqlite3", signing_key, directory)
    with (
        broker.serving(directory / "b.sock") as client,
        serving(make_parts(broker.ledger, client, FakeCluster())) as url,
    ):
        yield url, broker
    assert broker.records() == []
    assert broker.impersonator.asked == []
    broker.engine.dispose()
    shutil.rmtree(directory)


@pytest.fixture
def url(still: tuple[str, Broker]) -> str:
    """Where the server is."""
    return still[0]


@pytest.fixture
def http(url: str) -> Iterator[httpx2.Client]:
    """Somebody without credentials."""
    with client_of(url) as client:
        yield client


def exchange(url: str, request: str) -> bytes:
    """Send the bytes of a request's head; return the whole answer."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10) as connection:
        connection.settimeout(10)
        connection.sendall(request.encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if length and len(body) >= int(length[1]):
                break
        return answer


@pytest.mark.threat("T39")
def test_there_is_nothing_but_the_api(http: httpx2.Client) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/v1", "/v1/runs/", "/metrics", "/static/../etc/passwd"):
        problem(http.get(path), 404, "request.no_such_page")


@pytest.mark.threat("T23")
@pytest.mark.parametrize("path", ["/v1/node/tickets", "/v1/node/released"])
@pytest.mark.parametrize("authorization", [None, "Negotiate", "Bearer abc", "Basic YTpi"])
def test_a_node_without_kerberos_is_asked_for_it(http: httpx2.Client, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    answer = http.post(path, json={"slurm_job_id": 1, "uid": 20001, "node": "node1"}, headers=headers)
    problem(answer, 401, "negotiate.required")
    assert answer.headers["www-authenticate"] == "Negotiate"


def _changed(**changes: Any) -> Any:
    return lambda body: body | changes


def _facts(**changes: Any) -> Any:
    return lambda body: body | {"facts": body["facts"] | changes}


BAD_EVIDENCE: dict[str, Any] = {
    "an account": _changed(account="root"),
    "a fact too many": _facts(account="root"),
    "no token": lambda body: {name: value for name, value in body.items() if name != "id_token"},
    "a token of another alphabet": _changed(id_token="\u20ac" * 100),
    "a job token of another alphabet": _changed(job_token="\u20ac" * 100),
    "a token that is a number": _changed(id_token=7),
    "no job token": _changed(id_token=None, job_token=None),
    "a long server": _facts(server_url="x" * 1025),
    "a server of another kind": _facts(server_url=7),
    "a long token": _changed(id_token="x" * (32 * 1024 + 1)),
    "a job id as text": _facts(job_id="301"),
    "a negative job id": _facts(job_id=-1),
    "an endless job": _facts(timeout_seconds=10**9),
    "long parameters": _changed(scheduler_parameters="x" * (16 * 1024 + 1)),
    "a cluster of another kind": _changed(cluster=7),
    "a list": lambda body: [body],
    "nothing": lambda body: None,
}


@pytest.mark.threat("T38")
@pytest.mark.parametrize("change", BAD_EVIDENCE.values(), ids=BAD_EVIDENCE.keys())
def test_malformed_evidence_is_refused_before_the_broker_sees_it(
    http: httpx2.Client, still: tuple[str, Broker], change: Any
) -> None:
    secret = "glcbt-canary"
    answer = http.post("/v1/runs", json=change(body_of(still[1].evidence(job_token=secret))))
    problem(answer, 422, "request.invalid")
    assert secret not in answer.text


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":1}' * 2])
def test_a_body_that_is_no_json_is_refused(http: httpx2.Client, content: bytes) -> None:
    answer = http.post("/v1/runs", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.threat("T38")
@pytest.mark.parametrize(
    ("method", "path", "bound"),
    [("POST", "/v1/runs", MAX_BODY_BYTES), ("PUT", "/v1/runs/x/stages/y", MAX_SCRIPT_BYTES)],
    ids=["JSON", "script"],
)
def test_a_body_that_says_that_it_is_too_long_is_not_read(url: str, method: str, path: str, bound: int) -> None:
    answer = exchange(url, f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {bound + 1}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"request.too_large" in answer


@pytest.mark.threat("T38")
@pytest.mark.parametrize("length", ["x", "-1", "1e9", " "])
def test_a_length_that_is_no_number_is_refused(url: str, length: str) -> None:
    answer = exchange(url, f"POST /v1/runs HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {length}\r\n\r\n")
    assert re.match(rb"HTTP/1.1 4\d\d ", answer)


@pytest.mark.threat("T39")
@pytest.mark.parametrize(
    "host",
    [
        *("evil.test", "", "*", "127.0.0.1", f"{HOST}.evil.test", f"evil.test/{HOST}", f"{HOST}/.."),
        *(f"{HOST}:80:80", f"{HOST}:x", f"x@{HOST}"),
    ],
)
def test_a_host_that_is_not_ours_is_refused(http: httpx2.Client, host: str) -> None:
    problem(http.get("/health/live", headers={"host": host}), 400, "request.host")


@pytest.mark.threat("T39")
@pytest.mark.parametrize("host", [HOST, f"{HOST}:8443", HOST.upper()])
def test_our_own_names_are_answered(http: httpx2.Client, host: str) -> None:
    assert http.get("/health/live", headers={"host": host}).json() == {"status": "live"}


@pytest.mark.threat("T39")
@pytest.mark.parametrize("lines", ["", f"Host: {HOST}\r\nHost: evil.test\r\n"], ids=["none", "two"])
def test_none_or_two_hosts_are_refused(url: str, lines: str) -> None:
    assert exchange(url, f"GET /health/live HTTP/1.1\r\n{lines}\r\n").startswith(b"HTTP/1.1 400 ")


def test_evidence_that_grows_over_the_brokers_frame_is_refused(http: httpx2.Client, still: tuple[str, Broker]) -> None:
    """JSON writes a character of another plane in twelve bytes."""
    facts = body_of(still[1].evidence())["facts"] | {"ref": "\U0001f600" * 1024, "project_path": "\U0001f600" * 2048}
    parameters = "\U0001f600" * (16 * 1024)
    body = body_of(still[1].evidence()) | {"facts": facts, "scheduler_parameters": parameters, "id_token": "x" * 32768}
    answer = http.post("/v1/runs", content=_utf8(body), headers={"content-type": "application/json"})
    problem(answer, 422, "request.too_large")


def _utf8(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
