"""Requests to a GitLab that cost little whatever it answers: its own CA, no redirects, no proxy, size and time bounded.

httpx2's time-outs count each read anew, so that headers or a body that come byte by byte would hold a thread for hours.
Here one deadline holds for a whole conversation: when it passes, its connections are cut.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx2

_WAIT_SECONDS: Final = 2.0
_TLS_UP: Final = "connection.start_tls.complete"
"""The trace event of httpcore2 whose ``return_value`` is a connection that is ready for a request."""


class TooLarge(ValueError):
    """The answer is longer than was allowed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case; one that came twice has both values, with a comma."""


def plain_https(url: str) -> bool:
    """Whether ``url`` is an https URL with a host, and without user, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and not (parts.query or parts.fragment or parts.username)


def trusting(ca_file: Path) -> ssl.SSLContext:
    """A TLS 1.2+ client context that trusts the CAs in ``ca_file`` (PEM) and no others, and checks names."""
    context = ssl.create_default_context(cafile=str(ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Conversation:
    """A few requests within ``seconds`` in all; a context manager whose end leaves no connection behind."""

    def __init__(
        self, context: ssl.SSLContext, *, seconds: float, most_bytes: int, wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        """``context`` says whom to trust; answers may have up to ``most_bytes``, with ``wait_seconds`` of silence."""
        self._deadline = time.monotonic() + seconds
        self._most_bytes = most_bytes
        self._connections: list[Any] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._http = httpx2.Client(
            verify=context,
            trust_env=False,
            follow_redirects=False,
            http1=True,
            http2=False,
            timeout=httpx2.Timeout(wait_seconds),
            headers={"Accept": "application/json", "User-Agent": "ci-bridge"},
        )

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._http.close()

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a GET; raises TooLarge, and OSError for no whole answer in time."""
        return self._ask("GET", url, None, headers)

    def post(self, url: str, form: Mapping[str, str]) -> Answer:
        """The answer to ``form``, sent as application/x-www-form-urlencoded; raises as ``get`` does."""
        return self._ask("POST", url, form, None)

    def post_json(self, url: str, content: bytes, headers: Mapping[str, str]) -> Answer:
        """The answer to ``content``, sent as application/json; raises as ``get`` does."""
        return self.send_json("POST", url, content, headers)

    def send_json(self, method: str, url: str, content: bytes, headers: Mapping[str, str]) -> Answer:
        """As ``post_json``, with another method."""
        return self._ask(method, url, None, {"Content-Type": "application/json", **headers}, content)

    def _ask(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        content: bytes | None = None,
    ) -> Answer:
        body = bytearray()
        try:
            with self._http.stream(
                method, url, data=form, content=content, headers=headers, extensions={"trace": self._note}
            ) as response:
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > self._most_bytes:
                        raise TooLarge(f"answer above {self._most_bytes} bytes")
                # A body without a length looks whole when the connection is cut.
                self._check_time()
                return Answer(response.status_code, bytes(body), dict(response.headers))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OSError(f"{type(error).__name__}: {error}") from error

    def _check_time(self) -> None:
        if time.monotonic() >= self._deadline:
            raise TimeoutError("too slow")

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        if event == _TLS_UP:
            self._connections.append(info["return_value"])
            self._check_time()

    def _cut(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                # Not SSLSocket's own shutdown: after that, a read under way would go on in the clear.
                socket.socket.shutdown(connection.get_extra_info("socket"), socket.SHUT_RDWR)
