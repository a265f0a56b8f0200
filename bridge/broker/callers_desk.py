"""What the broker does about sessions and API tokens, between the words of its socket and the rooms that keep them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.broker.answering import answered
from bridge.broker.fields import malformed, numbers, optional_text, texts
from bridge.broker.peer import Peer
from bridge.broker.people_desk import plain
from bridge.broker.server import Answer, Handler
from bridge.people.api_tokens import ApiTokens
from bridge.people.callers import Caller
from bridge.people.sessions import Sessions
from bridge.policy.roles import Role

Act = Callable[[Mapping[str, Any], Caller], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CallersDesk:
    """Translates; decides nothing."""

    caller: Callable[[Mapping[str, Any], Peer], Caller]
    """Finds out who calls."""
    sessions: Sessions
    tokens: ApiTokens

    def handlers(self) -> Mapping[str, Handler]:
        """Return what the broker's server answers, by name of the operation."""
        acts: Mapping[str, Act] = {
            "session_open": self._session_open,
            "session_close_all": self._session_close_all,
            "api_token_create": self._api_token_create,
            "api_token_list": self._api_token_list,
            "api_token_revoke": self._api_token_revoke,
        }
        return {name: self._answering(act) for name, act in acts.items()}

    def _answering(self, act: Act) -> Handler:
        def handler(request: Mapping[str, Any], peer: Peer) -> Answer:
            caller = self.caller(request, peer)
            result = plain(act(request, caller))
            return answered(caller), json.dumps(result, separators=(",", ":")).encode()

        return handler

    def _session_open(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"session": self.sessions.open(caller)}

    def _session_close_all(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"closed": self.sessions.close_all(caller, optional_text(request, "principal"))}

    def _api_token_create(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        scopes, (days,), (note,) = request.get("scopes"), numbers(request, "days"), texts(request, "note")
        if type(scopes) is not list or len(scopes) > len(Role) or not all(type(one) is str for one in scopes):
            raise malformed()
        made = self.tokens.create(caller, scopes, days, note)
        return {"token": made.token, "secret": made.secret}

    def _api_token_list(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"tokens": self.tokens.listed(caller)}

    def _api_token_revoke(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"token": self.tokens.revoke(caller, *texts(request, "token_id"))}
