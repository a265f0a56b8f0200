"""Relays what a person asks, together with their Kerberos token, to the broker, which finds out who they are.

Web believes nothing that it could be told: it passes the whole ``Authorization`` header on and shows what comes back.
One token is one request (RFC 4559), so that each route here asks the broker once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Header, Request, Response

from bridge.api.guards import guard
from bridge.audit.ledger import Ledger
from bridge.broker.client import BrokerClient
from bridge.errors import TokenRefused

MAX_AUTHORIZATION: Final = 32 * 1024

PEOPLE_AT_ONCE: Final = 16
"""Whom the broker answers may wait for GitLab, and strangers may knock: in threads that nobody's job needs (T38)."""


@dataclass(frozen=True, slots=True)
class Counter:
    """Where people are served; one for each application."""

    broker: BrokerClient
    ledger: Ledger
    seats: CapacityLimiter


@dataclass(frozen=True, slots=True)
class Asker:
    """Somebody at the counter."""

    counter: Counter
    authorization: str = field(repr=False)
    response: Response = field(repr=False)
    """Its headers become those of the answer."""

    async def ask(self, op: str, **fields: Any) -> Any:
        """Return what the broker answers to this person; raises what it raises. Once for each request.

        Our side of Negotiate goes into the answer's header, where the person's program checks that it spoke to us.
        """
        relay = partial(self.counter.broker.ask_for, op, authorization=self.authorization, **fields)
        result, reply = await to_thread.run_sync(relay, limiter=self.counter.seats)
        self.response.headers["WWW-Authenticate"] = f"Negotiate {reply}"
        return result


@guard
def authorization(request: Request, authorization: Annotated[str, Header(max_length=MAX_AUTHORIZATION)] = "") -> str:
    """Return the ``Authorization`` header, as it came; raises TokenRefused ``negotiate.required``.

    Without one the broker is never asked: to it, a request that shows no token is that of the process which sends it.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "negotiate" or not token or len(request.headers.getlist("Authorization")) != 1:
        raise TokenRefused(
            "negotiate.required",
            "This address answers people who show a Kerberos ticket.",
            "Run kinit, then call it with HTTP Negotiate, as ci-bridge and 'curl --negotiate -u :' do.",
        )
    return authorization


def asker(request: Request, response: Response, shown: Annotated[str, Depends(authorization)]) -> Asker:
    """Return whoever asks, at the counter that the composition root made."""
    return Asker(request.app.state.counter, shown, response)


Person = Annotated[Asker, Depends(asker)]
