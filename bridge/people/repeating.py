"""Does a request that comes again under the same idempotency key once, and gives its answer again. Runs in the broker.

Here, and not in web: only here it is known who calls before anything is written down, and a ticket is shown only once.
A key belongs to its principal. Refusals and outages are not kept, as nothing was done then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.audit.ledger import Claim, Ledger
from bridge.errors import BridgeError, Conflict, RequestRefused

KEY: Final = "idempotency_key"
"""The member of a request that has the key; absent where the caller gave none."""

_NOT_ASKED: Final = frozenset({"authorization", KEY})


@dataclass(frozen=True, slots=True)
class Repeats:
    """Knows what was answered; every part is passed in."""

    ledger: Ledger

    def once(self, principal: str, request: Mapping[str, Any], act: Callable[[], bytes]) -> bytes:
        """Return the answer of ``act``, or the one that the same request got before under its key.

        Raises what ``act`` raises, RequestRefused ``idempotency.reused`` for another request under a known key, and
        Conflict ``idempotency.busy`` where the first has no answer yet, or its broker ended before it had one.
        """
        key = request.get(KEY)
        if type(key) is not str:
            return act()
        with self.ledger.begin() as tx:
            claimed = tx.claim_key(principal, key, request_hash(request))
        if isinstance(claimed, bytes):
            return claimed
        if claimed is not Claim.NEW:
            raise _reused() if claimed is Claim.OTHER else _busy()
        try:
            answer = act()
        except BridgeError:
            self._settle(principal, key, None)
            raise
        self._settle(principal, key, answer)
        return answer

    def _settle(self, principal: str, key: str, answer: bytes | None) -> None:
        with self.ledger.begin() as tx:
            tx.settle_key(principal, key, answer)


def request_hash(request: Mapping[str, Any]) -> str:
    """Hex SHA-256 of all that is asked for, without who asks: a ticket is another each time."""
    asked = {name: value for name, value in request.items() if name not in _NOT_ASKED}
    data = asked.pop("data", b"")
    header = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    return hashlib.sha256(len(header).to_bytes(8, "big") + header + data).hexdigest()


def _reused() -> RequestRefused:
    return RequestRefused(
        "idempotency.reused",
        "This idempotency key was used for another request.",
        "Make a new random key for each thing that is to be done.",
    )


def _busy() -> Conflict:
    return Conflict(
        "idempotency.busy",
        "A request with this idempotency key is at work, or nobody knows what became of it.",
        "Ask again in a moment; where it lasts, look whether it was done before you use a new key.",
    )
