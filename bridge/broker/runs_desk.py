"""What the broker does for people about runs, between the words of its socket and the desk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.broker.answering import answered
from bridge.broker.fields import texts
from bridge.broker.peer import Peer
from bridge.broker.people_desk import plain
from bridge.broker.server import Answer, Handler
from bridge.model import RunId
from bridge.people.callers import Caller
from bridge.people.cancelling import CancelDesk


@dataclass(frozen=True, slots=True)
class RunOps:
    """Translates; decides nothing."""

    caller: Callable[[Mapping[str, Any], Peer], Caller]
    """Finds out who calls."""
    cancelling: CancelDesk

    def handlers(self) -> Mapping[str, Handler]:
        """Return what the broker's server answers, by name of the operation."""
        return {"run_cancel": self._run_cancel}

    def _run_cancel(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        caller = self.caller(request, peer)
        run_id, reason = texts(request, "run_id", "reason")
        cancel = self.cancelling.cancel(caller, RunId(run_id), reason)
        return answered(caller), json.dumps({"cancel": plain(cancel)}, separators=(",", ":")).encode()
