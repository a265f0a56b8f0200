"""What the broker does for people: links, consents, kill switches; between the words of its socket and their desks."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from bridge.audit.record import RecordType
from bridge.broker.answering import answered
from bridge.broker.bound import binding_of
from bridge.broker.fields import malformed, numbers, optional_number, optional_text, texts
from bridge.broker.peer import Peer
from bridge.broker.server import Answer, Handler
from bridge.errors import PolicyRefused
from bridge.model import KillScope
from bridge.people.acts import Acts
from bridge.people.adopting import AdoptionDesk
from bridge.people.callers import Caller, Callers
from bridge.people.consenting import ConsentAct, ConsentDesk
from bridge.people.kill_switches import KillDesk
from bridge.people.linking import LinkDesk
from bridge.people.repeating import Repeats
from bridge.register import ProjectRef

E = TypeVar("E", bound=enum.StrEnum)

Act = Callable[[Mapping[str, Any], Caller], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PeopleDesk:
    """Finds out who calls, translates, and decides nothing."""

    callers: Callers
    linking: LinkDesk
    consenting: ConsentDesk
    killing: KillDesk
    adopting: AdoptionDesk
    acts: Acts
    """For what no desk gets to see."""
    repeats: Repeats | None = None
    """Without it a request that comes again is done again."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return what the broker's server answers, by name of the operation."""
        acts: Mapping[str, Act] = {
            "whoami": self._whoami,
            "link_start": self._link_start,
            "link_found": self._link_found,
            "link_confirm": self._link_confirm,
            "link_propose": self._link_propose,
            "link_decide": self._link_decide,
            "link_end": self._link_end,
            "links": self._links,
            "consent_show": self._consent_show,
            "consent_change": self._consent_change,
            "kill_throw": self._kill_throw,
            "kill_lift": self._kill_lift,
            "register_adopt": self._register_adopt,
        }
        return {name: self._answering(act) for name, act in acts.items()}

    def _answering(self, act: Act) -> Handler:
        def handler(request: Mapping[str, Any], peer: Peer) -> Answer:
            caller = self.caller(request, peer)

            def result() -> bytes:
                # As data: what is said of many links would not fit into a frame's header.
                return json.dumps(plain(act(request, caller)), separators=(",", ":")).encode()

            return answered(caller), result() if self.repeats is None else self.repeats.once(
                caller.principal, request, result
            )

        return handler

    def caller(self, request: Mapping[str, Any], peer: Peer) -> Caller:
        """Whoever shows a credential; without one only the uid of the process counts, and web's own is nobody's."""
        authorization = optional_text(request, "authorization")
        if authorization is None:
            return self.callers.by_socket(peer.uid, *texts(request, "operator"))
        try:
            return self.callers.by_authorization(authorization, binding_of(request))
        except PolicyRefused:
            # Somebody spends a ticket on what it was not made for. Whose it is can't be read from it any more.
            with self.acts.refusals(RecordType.ACCESS, str(request.get("op")), "unknown"):
                raise

    @staticmethod
    def _whoami(request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {
            "principal": caller.principal,
            "account": caller.account,
            "roles": sorted(caller.roles),
            "method": caller.method,
            "person": caller.person,
        }

    def _link_start(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"address": self.linking.start(caller, *texts(request, "issuer"))}

    def _link_found(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"found": self.linking.found(caller, *texts(request, "state", "code"))}

    def _link_confirm(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"link": self.linking.confirm(caller, *texts(request, "confirmation"))}

    def _link_propose(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        issuer, account, reason = texts(request, "issuer", "account", "reason")
        (user_id,) = numbers(request, "user_id")
        return {"link": self.linking.propose(caller, issuer, user_id, account, reason)}

    def _link_decide(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        link_id, reason = texts(request, "link_id", "reason")
        approve = request.get("approve")
        if type(approve) is not bool:
            raise malformed()
        return {"link": self.linking.decide(caller, link_id, approve=approve, reason=reason)}

    def _link_end(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        link_id, reason = texts(request, "link_id", "reason")
        return {"link": self.linking.end(caller, link_id, reason)}

    def _links(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"links": self.linking.links(caller)}

    def _consent_show(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"standing": self.consenting.show(caller)}

    def _consent_change(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        issuer, project_id = optional_text(request, "issuer"), optional_number(request, "project_id")
        project = None if issuer is None or project_id is None else ProjectRef(issuer, project_id)
        act = _member(ConsentAct, *texts(request, "act"))
        return {"consent": self.consenting.change(caller, act, project)}

    def _kill_throw(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        scope, reason = texts(request, "scope", "reason")
        switch, new = self.killing.throw(
            caller,
            _member(KillScope, scope),
            reason,
            issuer=optional_text(request, "issuer"),
            number=optional_number(request, "number"),
            account=optional_text(request, "account"),
        )
        return {"switch": switch, "new": new}

    def _kill_lift(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        return {"switch": self.killing.lift(caller, *texts(request, "switch_id", "reason"))}

    def _register_adopt(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        register = self.adopting.adopt(caller, *texts(request, "reason"))
        counts = {"links": len(register.links), "consents": len(register.consents), "switches": len(register.switches)}
        return {"revision": register.revision, **counts}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: objects by their fields, times as ISO 8601 in UTC."""
    if dataclasses.is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, enum.StrEnum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value


def _member(kind: type[E], value: str) -> E:
    try:
        return kind(value)
    except ValueError as error:
        raise malformed() from error
