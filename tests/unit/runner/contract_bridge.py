"""A bridge that speaks the executor's contract on a real socket and does what a test tells it to."""

from __future__ import annotations

import http.server
import json
import re
import socket
import socketserver
import ssl
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

from runner import wire

LONGEST_WAIT_SECONDS = 30.0
RUN_ID = "0123456789abcdefghijklmnop"
SESSION = "session-canary-0123456789abcdef"

ADMISSION: dict[str, Any] = {
    "run_id": RUN_ID,
    "session": SESSION,
    "account": "alice",
    "uid": 20001,
    "principal": "alice@REALM.TEST",
    "reason": "alice pushed to a protected branch",
    "policy_ids": ["members-run-as-themselves"],
    "builds_dir": "/shared/builds/alice/run/builds",
    "cache_dir": "/shared/cache/alice",
    "cluster": "pocket",
    "tickets_until": "2026-11-20T22:10:00Z",
    "plan": {"partition": "ci", "nodes": 1, "time_minutes": 10},
    "notes": ["The job asked for 16 gpus and gets 8."],
    "reference": "ref-42",
    "job_token_on_nodes": False,
}


def problem(status: int, code: str, title: str = "A sentence.") -> tuple[int, str, bytes]:
    """Make an RFC 9457 answer."""
    body = {"type": f"urn:ci-bridge:{code}", "code": code, "title": title, "remedy": "A remedy.", "status": status}
    return status, "application/problem+json", json.dumps({**body, "reference": "ref-43"}).encode()


class ContractBridge:
    """One bridge; ``answers`` replaces the answer of an operation, ``cuts`` cuts event streams after so many bytes."""

    def __init__(self, directory: Path, certificate: Path | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        self.admissions: list[dict[str, Any]] = []
        self.scripts: list[tuple[str, str, bytes]] = []
        self.afters: list[int] = []
        self.job_tokens: set[tuple[str, str | None]] = set()
        """Method of each call after the admission, and the job token in its header."""
        self.offsets: list[int] = []
        self.cancels = 0
        self.finishes = 0
        self.answers: dict[str, list[tuple[int, str, bytes]]] = {}
        self.cuts: list[int] = []
        self.raw_events: bytes | None = None
        self.on_cancel: list[tuple[dict[str, Any], bytes]] = [end(wire.Outcome.CANCELLED)]
        self.content_length = True
        self.forgetful = False
        self._events: list[tuple[dict[str, Any], bytes]] = []
        self._changed = threading.Condition()
        self.url, self._server = _listen(directory, certificate, self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def add(self, *events: tuple[dict[str, Any], bytes]) -> None:
        """Append events, numbered from 1 on."""
        with self._changed:
            for header, data in events:
                self._events.append(({"n": len(self._events) + 1, **header}, data))
            self._changed.notify_all()

    def wait_until(self, condition: Any) -> None:
        """Wait for what an executor should do."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the executor did not do it"
            time.sleep(0.005)

    def close(self) -> None:
        """Stop listening."""
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply_to(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes] | int:
        """Do a request; returns status, type and body, or how many bytes of an event stream to send before the cut."""
        operation = _operation(method, path)
        self.requests.append((operation, path))
        if planned := self.answers.get(operation):
            return planned.pop(0) if len(planned) > 1 else planned[0]
        return getattr(self, f"_{operation}")(path, body)  # type: ignore[no-any-return]

    def _admit(self, _path: str, body: bytes) -> tuple[int, str, bytes]:
        self.admissions.append(json.loads(body))
        return 201, "application/json", json.dumps(ADMISSION).encode()

    def _put(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        match = re.search(r"/stages/([0-9a-f]{32})\?stage=(\w+)$", path)
        assert match
        self.scripts.append((match[1], match[2], body))
        kind = "slurm" if wire.is_user_stage(match[2]) else "login"
        return 202, "application/json", json.dumps({"stage": match[2], "kind": kind}).encode()

    def _events_after(self, path: str, _body: bytes) -> tuple[int, str, bytes]:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        after = int(query["after"][0])
        self.afters.append(after)
        self.offsets.append(int(query["offset"][0]))
        if self.raw_events is not None:
            return 200, "application/octet-stream", self.raw_events
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > after, LONGEST_WAIT_SECONDS)
            frames = [
                wire.encode(header, data) for header, data in self._events if self.forgetful or header["n"] > after
            ]
        return 200, "application/octet-stream", b"".join(frames)

    def _cancel(self, _path: str, _body: bytes) -> tuple[int, str, bytes]:
        self.cancels += 1
        if self.cancels == 1:
            self.add(*self.on_cancel)
        return 202, "application/json", b"{}"

    def _finish(self, _path: str, _body: bytes) -> tuple[int, str, bytes]:
        self.finishes += 1
        return 200, "application/json", b'{"cancelled": [], "complete": true}'


def end(
    outcome: Any, exit_code: int | None = None, error: dict[str, str] | None = None
) -> tuple[dict[str, Any], bytes]:
    """Make a stage's last event."""
    return {"kind": "end", "outcome": str(outcome), "exit_code": exit_code, "error": error}, b""


def log(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Make an event with output of the job."""
    return {"kind": "log"}, data


def note(text: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """Make an event with something that the bridge has to say."""
    return {"kind": "note", "text": text, **fields}, b""


def _operation(method: str, path: str) -> str:
    if path == "/v1/runs":
        return "admit"
    if method == "PUT":
        return "put"
    last = path.partition("?")[0].rpartition("/")[2]
    return {"events": "events_after", "cancel": "cancel", "finish": "finish"}[last]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bridge: ContractBridge

    def do_POST(self) -> None:
        self._do()

    def do_PUT(self) -> None:
        self._do()

    def do_GET(self) -> None:
        self._do()

    def address_string(self) -> str:
        return "test"

    def log_message(self, *_args: object) -> None:
        return

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/runs":
            self.bridge.job_tokens.add((self.command, self.headers.get("X-CI-Bridge-Job-Token")))  # type: ignore[misc]
        if self.path != "/v1/runs" and self.headers.get("Authorization") != f"Bearer {SESSION}":
            status, kind, data = problem(401, "session.unknown")
        else:
            status, kind, data = self.bridge.reply_to(self.command, self.path, body)  # type: ignore[misc]
        cut = self.bridge.cuts.pop(0) if self.bridge.cuts and "/events" in self.path else None
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.bridge.content_length:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
            pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
            data = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in [*pieces, b""])
        self.end_headers()
        self.wfile.write(data if cut is None else data[:cut])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        return


class _TcpServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_args: object) -> None:
        return


def _listen(directory: Path, certificate: Path | None, bridge: ContractBridge) -> tuple[str, socketserver.BaseServer]:
    handler = type("Handler", (_Handler,), {"bridge": bridge})
    if certificate is None:
        path = directory / "web.sock"
        return f"unix:{path}", _UnixServer(str(path), handler)
    server = _TcpServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return f"https://localhost:{server.server_address[1]}", server
