"""How web asks the broker: one request a connection, with a bound."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Final

from bridge import errors
from runner import wire

REPLY_SECONDS: Final = 30
"""Covers GitLab's and the KDC's own bounds (5 s each) and a queue before them."""

_KINDS: Final[dict[str, type[errors.BridgeError]]] = {
    kind.__name__: kind
    for kind in (
        errors.TokenRefused,
        errors.PolicyRefused,
        errors.RequestRefused,
        errors.Conflict,
        errors.NotFound,
        errors.Outage,
        errors.TooMany,
        errors.Defect,
    )
}


class BrokerClient:
    """Sends one request after the other to the broker's socket; safe to share between threads."""

    def __init__(self, path: Path, *, timeout_seconds: float = REPLY_SECONDS) -> None:
        self._path = path
        self._timeout = timeout_seconds

    def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Return the reply's header and data; raises what the broker raised, or Outage ``broker.unreachable``.

        ``fields`` are for JSON, and small; what may be large goes as ``data``. Raises RequestRefused
        ``request.too_large`` for what does not fit into one frame.
        """
        request = self._encoded({"op": op} | fields, data)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout)
                connection.connect(str(self._path))
                connection.sendall(request)
                with connection.makefile("rb") as stream:
                    frame = wire.read_frame(stream)
        except (OSError, wire.BrokenFrame) as error:
            raise self._unreachable(error) from error
        if frame is None:
            raise self._unreachable(EOFError("no reply"))
        header, data = frame
        if not header.get("ok"):
            kind = _KINDS.get(str(header.get("kind")), errors.Defect)
            reference = header.get("reference")
            raise kind(
                header["code"], header["title"], header["remedy"], **({"reference": reference} if reference else {})
            )
        return header, data

    def ask_for(self, op: str, **fields: Any) -> tuple[Any, str]:
        """Return what the broker answers somebody, and its side of Negotiate in base64; raises as ``ask`` does.

        Somebody is whoever made ``authorization``, the value of that header; without it, this very process.
        """
        header, data = self.ask(op, **fields)
        return json.loads(data), str(header["reply"])

    @staticmethod
    def _encoded(header: dict[str, Any], data: bytes) -> bytes:
        try:
            return wire.encode(header, data)
        except wire.BrokenFrame as error:
            raise errors.RequestRefused(
                "request.too_large",
                "What was sent is too long.",
                "In a job: shorten SCHEDULER_PARAMETERS, or the job's names; otherwise send less at once.",
            ) from error

    @staticmethod
    def _unreachable(error: Exception) -> errors.Outage:
        return errors.Outage(
            "broker.unreachable",
            "The bridge's broker does not answer.",
            "Retry the job in a few minutes; an operator can look at the ci-bridge-broker service.",
            cause=type(error).__name__,
        )
