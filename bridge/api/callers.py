"""Relays what somebody asks, together with what they show of themselves, to the broker, which finds out who they are.

Web believes nothing that it could be told: it passes the whole ``Authorization`` header on, or what its cookie holds
as ``Session``, and shows what comes back. One token is one request (RFC 4559), so that each route here asks once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Header, Request, Response

from bridge.api.cookies import ambiguous, forgotten, kept, session_of, shows_cookie
from bridge.api.guards import guard
from bridge.audit.ledger import Ledger
from bridge.broker.client import BrokerClient
from bridge.errors import TokenRefused

MAX_AUTHORIZATION: Final = 32 * 1024

PEOPLE_AT_ONCE: Final = 16
"""Whom the broker answers may wait for GitLab, and strangers may knock: in threads that nobody's job needs (T38)."""

_SHOWN: Final = re.compile(r"(?i:negotiate|bearer) [\x21-\x7e]+", re.ASCII)
"""``Session`` is not among them: what a cookie holds counts only as a cookie, with what a cookie needs."""


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

        Our side of Negotiate goes into the answer's header, where the person's program checks that it spoke to us, and
        the next token of a session into its cookie.
        """
        relay = partial(self.counter.broker.ask, op, authorization=self.authorization, **fields)
        header, data = await to_thread.run_sync(relay, limiter=self.counter.seats)
        if header.get("reply"):
            self.response.headers["WWW-Authenticate"] = f"Negotiate {header['reply']}"
        if header.get("session"):
            self.response.headers["Set-Cookie"] = kept(header["session"])
        return json.loads(data)

    async def begin_session(self) -> dict[str, Any]:
        """Begin a session for whoever asks, in the answer's cookie and nowhere else; raises what the broker raises.

        Returns ``session_id``, ``principal`` and ``ends_at``. For addresses with a ``Presenter``: a cookie that came
        along is replaced, whatever it was.
        """
        session = dict((await self.ask("session_open"))["session"])
        self.response.headers["Set-Cookie"] = kept(session.pop("token"))
        return session

    def forget_session(self) -> None:
        """Take the cookie away; what was in it stays good until it is idle, or until all sessions are ended."""
        self.response.headers["Set-Cookie"] = forgotten()


Authorization = Annotated[str, Header(max_length=MAX_AUTHORIZATION)]


@guard
async def credential(request: Request, authorization: Authorization = "") -> str:
    """Return what the request shows: its ``Authorization`` header as it came, or its cookie as ``Session <token>``.

    Without one the broker is never asked: to it, a request that shows nothing is that of the process which sends it.
    Raises TokenRefused ``negotiate.required`` or ``caller.session``, RequestRefused ``caller.ambiguous``, and
    PolicyRefused ``request.cross_site`` for a cookie with which another site's page could change something.
    """
    if not shows_cookie(request):
        return await header_only(request, authorization)
    if request.headers.getlist("Authorization"):
        raise ambiguous()
    return f"Session {session_of(request)}"


@guard
async def header_only(request: Request, authorization: Authorization = "") -> str:
    """Return the ``Authorization`` header, as it came, at addresses where a cookie is not looked at.

    Raises TokenRefused ``negotiate.required``, RequestRefused ``caller.ambiguous``.
    """
    if len(request.headers.getlist("Authorization")) > 1:
        raise ambiguous()
    if _SHOWN.fullmatch(authorization) is None:
        raise TokenRefused(
            "negotiate.required",
            "This address answers people who show a Kerberos ticket.",
            "Run kinit, then call it with HTTP Negotiate, as ci-bridge and 'curl --negotiate -u :' do.",
        )
    return authorization


async def asker(request: Request, response: Response, shown: Annotated[str, Depends(credential)]) -> Asker:
    """Return whoever asks, at the counter that the composition root made."""
    return Asker(request.app.state.counter, shown, response)


async def presenter(request: Request, response: Response, shown: Annotated[str, Depends(header_only)]) -> Asker:
    """Return whoever asks with an ``Authorization`` header, whatever cookie comes along."""
    return Asker(request.app.state.counter, shown, response)


Person = Annotated[Asker, Depends(asker)]
"""Whoever shows a ticket, a sign-in, an API token or a session."""

Presenter = Annotated[Asker, Depends(presenter)]
"""For addresses that begin a session, and pages where each step needs a ticket: an old cookie may come along."""
