"""The executor's HTTP connection to the bridge: TLS or unix socket, kept alive, one request at a time."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.parse

from runner.executor.failures import OUTAGE, REFUSED, CallFailed, Unreachable, outage
from runner.executor.settings import Settings

MAX_ANSWER_BYTES = 1024 * 1024
"""Bounds an answer other than the stream of events."""

RETRYABLE = frozenset({502, 503, 504})

Response = http.client.HTTPResponse


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _tls_context(ca_file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = True
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


class Client:
    """Speaks HTTP with the bridge; ``session`` is the run's secret, or empty before there is one.

    ``job_token`` goes along, so that a bridge that was restarted can ask GitLab whether the job still runs.
    """

    def __init__(self, settings: Settings, session: str = "", answer_seconds: int = 0, *, job_token: str = "") -> None:
        self._settings = settings
        self._answer_seconds = answer_seconds or settings.answer_seconds
        self._session = session
        self._job_token = job_token
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: bytes, media_type: str = "application/json") -> dict[str, object]:
        """Send a request and return the JSON object of a 2xx answer; raises CallFailed, Unreachable."""
        response = self.open(method, path, body, media_type)
        try:
            text = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error
        if len(text) > MAX_ANSWER_BYTES:
            self.close()
            raise bad_answer("an answer that is too long")
        return _object(text)

    def open(self, method: str, path: str, body: bytes = b"", media_type: str = "") -> Response:
        """Send a request and return its 2xx response, whose body is to be read; raises CallFailed, Unreachable.

        Unreachable means that the same request may be sent again: the connection failed, or the answer was 502, 503
        or 504.
        """
        headers = {"Accept": "application/json", "User-Agent": "ci-bridge-executor"}
        if media_type:
            headers["Content-Type"] = media_type
        if self._session:
            headers["Authorization"] = f"Bearer {self._session}"
        if self._job_token:
            headers["X-CI-Bridge-Job-Token"] = self._job_token
        try:
            connection = self._connected()
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if 200 <= response.status < 300:
                return response
            text = response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error
        self.close()
        raise _failure(response.status, text)

    def another(self) -> Client:
        """Make a client for the same run with a connection of its own, and less patience for each answer."""
        return Client(self._settings, self._session, self._settings.connect_seconds)

    def close(self) -> None:
        """Drop the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            connection = self._new()
            connection.connect()
            connection.sock.settimeout(self._answer_seconds)
            self._connection = connection
        return self._connection

    def _new(self) -> http.client.HTTPConnection:
        url, timeout = self._settings.bridge_url, self._settings.connect_seconds
        if url.startswith("unix:"):
            return _UnixConnection(url.removeprefix("unix:"), timeout)
        parts = urllib.parse.urlsplit(url)
        context = _tls_context(self._settings.ca_file)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port or 443, timeout=timeout, context=context)

    def _lost(self, error: Exception) -> Exception:
        self.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            return outage(
                "executor.bridge_untrusted",
                f"The bridge's certificate is not valid: {error.verify_message}.",
                "Ask the runner's administrator; nothing was sent to the bridge.",
            )
        reason = getattr(error, "strerror", None) or type(error).__name__
        return Unreachable(f"the bridge can't be reached: {reason}")


def bad_answer(what: str) -> CallFailed:
    """Make the failure for an answer that is not in the contract; ``what`` says what came instead."""
    return outage(
        "executor.bad_answer",
        f"The bridge sent {what}.",
        "Try again; if it stays, executor and bridge may be of different versions: tell the administrator.",
    )


def _object(text: bytes) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise bad_answer("something that is not JSON")
    return value


def _failure(status: int, text: bytes) -> Exception:
    """Turn an RFC 9457 problem into what the caller raises; says nothing of a body that is not ours."""
    try:
        problem = json.loads(text)
    except (ValueError, RecursionError):
        problem = None
    failure = CallFailed(
        OUTAGE if status >= 500 or status == 429 else REFUSED,
        _text(problem, "code"),
        _text(problem, "title") or "The bridge refused.",
        _text(problem, "remedy"),
        _text(problem, "reference"),
    )
    if status in RETRYABLE:
        reason = f": {failure.title.rstrip('.')}" if failure.code else ""
        return Unreachable(f"the bridge answered {status}{reason}", failure if failure.code else None)
    return failure if failure.code else bad_answer(f"the HTTP status {status} without an explanation")


def _text(problem: object, key: str) -> str:
    value = problem.get(key) if isinstance(problem, dict) else None
    return value if isinstance(value, str) else ""
