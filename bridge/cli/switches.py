"""Where ``ci-bridge kill`` throws its switches: at the broker of this machine, or at the bridge's API from anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import TypeAdapter

from bridge.audit import kills
from bridge.broker.client import BrokerClient
from bridge.cli.ledger import open_ledger
from bridge.cli.operator import operator
from bridge.cli.remote import Remote, connect, id_in_path
from bridge.errors import Outage, RequestRefused
from bridge.model import KillScope, KillSwitch
from bridge.settings import ClientSettings, Settings


@dataclass(frozen=True, slots=True)
class Target:
    """What a switch is to stop; what its scope does not need is None."""

    scope: KillScope
    issuer: str | None = None
    number: int | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class Thrown:
    """A switch in force: a new one, or the older one that stops just the same."""

    switch: KillSwitch
    new: bool
    live_runs: int | None
    """How many runs it ends now, where that can be seen."""


class Switches(Protocol):
    """The bridge's kill switches."""

    def throw(self, target: Target, reason: str) -> Thrown:
        """Put a switch in force; raises BridgeError."""
        ...

    def lift(self, switch_id: str, reason: str) -> KillSwitch:
        """Lift one; raises BridgeError."""
        ...

    def show(self, *, every: bool) -> list[KillSwitch]:
        """Return those in force, or all that ever were, oldest first; raises BridgeError."""
        ...

    def issuer(self, url: str | None) -> str:
        """Return the GitLab that is meant; a misspelt one would stop nobody. Raises RequestRefused ``kill.issuer``."""
        ...


class Here:
    """Through the broker's socket, which knows us by our uid; throwing is for root and web's user, lifting for root."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def throw(self, target: Target, reason: str) -> Thrown:
        """See Switches."""
        # Opened first: without its database there is nothing that the broker could write to either.
        ledger = open_ledger(self._settings, "ci-bridge kill")
        answer = self._ask(
            "kill_throw",
            scope=target.scope.value,
            reason=reason,
            issuer=target.issuer,
            number=target.number,
            account=target.account,
        )
        switch = _switch(answer["switch"])
        with ledger.read() as view:
            running = sum(kills.stops(switch, run.grant) for run in view.live_runs())
        return Thrown(switch, bool(answer["new"]), running)

    def lift(self, switch_id: str, reason: str) -> KillSwitch:
        """See Switches."""
        return _switch(self._ask("kill_lift", switch_id=switch_id, reason=reason)["switch"])

    def show(self, *, every: bool) -> list[KillSwitch]:
        """See Switches."""
        with open_ledger(self._settings, "ci-bridge kill").read() as view:
            return list(view.kill_switches(active=not every))

    def issuer(self, url: str | None) -> str:
        """See Switches."""
        known = [issuer.url for issuer in self._settings.issuers]
        if url is None and len(known) == 1:
            return known[0]
        if url not in known:
            raise RequestRefused(
                "kill.issuer",
                "No GitLab of the settings is meant by that." if url else "There are several GitLabs in the settings.",
                f"Name one of {', '.join(known)}.",
            )
        return url

    def _ask(self, op: str, **fields: Any) -> Any:
        client = BrokerClient(self._settings.broker.socket)
        try:
            result, _ = client.ask_for(op, operator=operator(), **fields)
        except Outage as error:
            if error.code != "broker.unreachable":
                raise
            raise Outage(
                "broker.unreachable",
                "The bridge's broker does not answer.",
                f"Run it as root or as {self._settings.broker.web_user}, and see that the broker's service runs.",
            ) from error
        return result


class There:
    """Over the API, as an operator whom the Kerberos ticket names."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._bridge: Remote = connect(settings)

    def throw(self, target: Target, reason: str) -> Thrown:
        """See Switches."""
        body = {
            "scope": target.scope.value,
            "reason": reason,
            "issuer": target.issuer,
            "number": target.number,
            "account": target.account,
        }
        answer = self._bridge.create("/v1/kills", body)
        return Thrown(self._read(answer), answer.get("new") is True, None)

    def lift(self, switch_id: str, reason: str) -> KillSwitch:
        """See Switches."""
        return self._read(self._bridge.post(f"/v1/kills/{id_in_path(switch_id)}/lift", {"reason": reason}))

    def show(self, *, every: bool) -> list[KillSwitch]:
        """See Switches."""
        answer = self._bridge.get("/v1/kills?lifted=true" if every else "/v1/kills")
        return self._bridge.read(list[KillSwitch], answer.get("switches"))

    def issuer(self, url: str | None) -> str:
        """See Switches. Whether the bridge knows it, the bridge says."""
        found = url or self._settings.issuer
        if found is None:
            raise RequestRefused("kill.issuer", "Which GitLab is meant is not clear.", "Name its URL with --issuer.")
        return found

    def _read(self, answer: dict[str, Any]) -> KillSwitch:
        return self._bridge.read(KillSwitch, answer.get("switch"))


def _switch(value: object) -> KillSwitch:
    return TypeAdapter(KillSwitch).validate_python(value)
