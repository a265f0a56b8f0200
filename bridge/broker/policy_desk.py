"""What the broker does for people about policy, between the words of its socket and the desks.

The files of a bundle come as the frame's data, a JSON object of path to text; the answer is the data of the reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.broker.answering import answered
from bridge.broker.fields import files, flag, numbers, optional_text, texts
from bridge.broker.incoming import DATA
from bridge.broker.peer import Peer
from bridge.broker.people_desk import plain
from bridge.broker.server import Answer, Handler
from bridge.people.activating import ActivationDesk
from bridge.people.caller import Caller
from bridge.people.policies import PolicyDesk
from bridge.people.policy_reading import PolicyReading
from bridge.people.repeating import Repeats

Result = Mapping[str, Any]
Act = Callable[[Mapping[str, Any], Caller], Result]


@dataclass(frozen=True, slots=True)
class PolicyOps:
    """Translates; decides nothing."""

    caller: Callable[[Mapping[str, Any], Peer], Caller]
    """Finds out who calls."""
    proposing: PolicyDesk
    activating: ActivationDesk
    reading: PolicyReading
    repeats: Repeats | None = None
    """Without it a request that comes again is done again."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return what the broker's server answers, by name of the operation."""
        acts: Mapping[str, Act] = {
            "policy_propose": self._propose,
            "policy_rewrite": self._rewrite,
            "policy_submit": self._submit,
            "policy_withdraw": self._withdraw,
            "policy_decide": self._decide,
            "policy_activate": self._activate,
            "policy_roll_back": self._roll_back,
            "policy_break_glass": self._break_glass,
            "policy_confirm": self._confirm,
            "policy_proposals": self._proposals,
            "policy_bundle": self._bundle,
            "policy_history": self._history,
            "policy_active": self._active,
            "policy_impact": self._impact,
        }
        return {name: self._answering(act) for name, act in acts.items()}

    def _answering(self, act: Act) -> Handler:
        def handler(request: Mapping[str, Any], peer: Peer) -> Answer:
            caller = self.caller(request, peer)

            def result() -> bytes:
                # Escapes would make a large bundle larger than a frame.
                return json.dumps(plain(act(request, caller)), separators=(",", ":"), ensure_ascii=False).encode()

            return answered(caller), result() if self.repeats is None else self.repeats.once(
                caller.principal, request, result
            )

        return handler

    def _propose(self, request: Mapping[str, Any], caller: Caller) -> Result:
        (title,) = texts(request, "title")
        base = optional_text(request, "base_hash")
        return {"proposal": self.proposing.propose(caller, title, files(request), base)}

    def _rewrite(self, request: Mapping[str, Any], caller: Caller) -> Result:
        named, base = _named(request), optional_text(request, "base_hash")
        return {"proposal": self.proposing.rewrite(caller, *named, files(request), base)}

    def _submit(self, request: Mapping[str, Any], caller: Caller) -> Result:
        base = optional_text(request, "base_hash")
        return {"proposal": self.proposing.submit(caller, *_named(request), base)}

    def _withdraw(self, request: Mapping[str, Any], caller: Caller) -> Result:
        return {"proposal": self.proposing.withdraw(caller, *_named(request))}

    def _decide(self, request: Mapping[str, Any], caller: Caller) -> Result:
        read_hash, reason = texts(request, "content_hash", "reason")
        approve = flag(request, "approve")
        decided = self.proposing.decide(caller, *_named(request), read_hash, approve=approve, reason=reason)
        return {"proposal": decided}

    def _activate(self, request: Mapping[str, Any], caller: Caller) -> Result:
        return {"activation": self.activating.activate(caller, *_named(request), *texts(request, "reason"))}

    def _roll_back(self, request: Mapping[str, Any], caller: Caller) -> Result:
        return {"activation": self.activating.roll_back(caller, *texts(request, "content_hash", "reason"))}

    def _break_glass(self, request: Mapping[str, Any], caller: Caller) -> Result:
        (reason,), (minutes,) = texts(request, "reason"), numbers(request, "minutes")
        given = files(request) if request.get(DATA) else None
        to_hash = optional_text(request, "content_hash")
        asked = self.activating.break_glass(caller, minutes, reason, to_hash=to_hash, files=given)
        return {"activation": asked}

    def _confirm(self, request: Mapping[str, Any], caller: Caller) -> Result:
        (number,), (read_hash,) = numbers(request, "number"), texts(request, "content_hash")
        return {"activation": self.activating.confirm(caller, number, read_hash)}

    def _proposals(self, request: Mapping[str, Any], caller: Caller) -> Result:
        proposal_id = optional_text(request, "proposal_id")
        if proposal_id is None:
            return {"proposals": self.reading.proposals(caller)}
        proposal, files = self.reading.proposal(caller, proposal_id)
        return {"proposal": proposal, "files": files}

    def _bundle(self, request: Mapping[str, Any], caller: Caller) -> Result:
        (content_hash,) = texts(request, "content_hash")
        return {"content_hash": content_hash, "files": self.reading.bundle(caller, content_hash)}

    def _history(self, request: Mapping[str, Any], caller: Caller) -> Result:
        activations, in_force = self.reading.history(caller)
        return {"activations": activations, "in_force": in_force}

    def _active(self, request: Mapping[str, Any], caller: Caller) -> Result:
        standing, files = self.reading.in_force(caller)
        return {"active": standing, "files": files}

    def _impact(self, request: Mapping[str, Any], caller: Caller) -> Result:
        content_hash, runs = self.reading.impact(caller, optional_text(request, "content_hash"))
        return {"content_hash": content_hash, "runs": runs}


def _named(request: Mapping[str, Any]) -> tuple[str, int]:
    """The proposal, and the version of it that the caller has read."""
    return texts(request, "proposal_id")[0], numbers(request, "version")[0]
