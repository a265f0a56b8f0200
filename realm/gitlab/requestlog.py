"""Remembers which requests the stand-in saw: method, path, status and kind of credential, never a token."""

import threading
from collections import deque
from dataclasses import dataclass

REMEMBERED = 5000


@dataclass(frozen=True)
class SeenRequest:
    """One request; `credential` is job-token, private-token, bearer, basic or none."""

    method: str
    path: str
    status: int
    credential: str


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[SeenRequest] = deque(maxlen=REMEMBERED)

    def add(self, seen: SeenRequest) -> None:
        """Append one request."""
        with self._lock:
            self._seen.append(seen)

    def all(self) -> list[SeenRequest]:
        """A copy of all remembered requests."""
        with self._lock:
            return list(self._seen)

    def clear(self) -> None:
        """Forget everything, before a test counts."""
        with self._lock:
            self._seen.clear()


def credential_kind(headers: dict[bytes, bytes]) -> str:
    """Name the kind of credential in lower-case ASGI headers, without looking at its value further."""
    if b"job-token" in headers:
        return "job-token"
    if b"private-token" in headers:
        return "private-token"
    scheme = headers.get(b"authorization", b"").split(b" ")[0].lower()
    return {b"bearer": "bearer", b"basic": "basic"}.get(scheme, "none")
