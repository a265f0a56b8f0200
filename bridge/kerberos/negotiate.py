"""Accepts one HTTP ``Negotiate`` token: which Kerberos principal sent this request.

RFC 4559 over SPNEGO (RFC 4178) or bare Kerberos (RFC 4121), one round only: a client that needs a second leg is
refused, since our callers' first token is a complete AP-REQ and a half-open context would have to be kept somewhere.
The replay cache is named explicitly: a captured token is worth the tickets of a job.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final, Protocol

import gssapi
from gssapi.raw import ChannelBindings
from gssapi.raw.exceptions import BadChannelBindingsError, DuplicateTokenError
from gssapi.raw.misc import GSSError

from bridge.errors import BridgeError, Outage, PolicyRefused, TokenRefused
from bridge.kerberos.deadline import Deadline, Late

MAX_TOKEN_BYTES: Final = 64 * 1024
_MAX_TEXT: Final = (MAX_TOKEN_BYTES + 2) // 3 * 4
_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?@[A-Z0-9.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Negotiated:
    """Who sent the request, and the token for the reply's ``WWW-Authenticate: Negotiate`` that proves us to them."""

    principal: str
    reply: bytes = field(repr=False)
    bound: bool = False
    """Whether the token was made for the request that was named, and for no other."""


class NegotiateAcceptor(Protocol):
    """Says who made an HTTP Negotiate token."""

    def accept_header(self, value: str, binding: bytes | None = None, *, demanded: bool = True) -> Negotiated:
        """Return the principal and our reply, for a token made for ``binding``; raises TokenRefused ``negotiate.*``.

        Where that is not ``demanded``, a token that was made for no request in particular passes, too.
        """
        ...


class Acceptor:
    """Accepts tokens for one ``HTTP/`` principal. Safe in threads."""

    def __init__(self, principal: str, keytab: str, replay_cache: str, *, deadline: Deadline | None = None) -> None:
        """Take the principal with realm, the keytab's path, and the path of the replay cache's file.

        The file is made by libkrb5 in format ``file2`` (rcache documentation), in a directory that is ours alone.
        """
        self._principal = principal
        self._realm = principal.rpartition("@")[2]
        self._store: dict[str | bytes, str | bytes] = {"keytab": f"FILE:{keytab}", "rcache": f"file2:{replay_cache}"}
        self._deadline = deadline or Deadline()

    def accept_header(self, value: str, binding: bytes | None = None, *, demanded: bool = True) -> Negotiated:
        """Accept the value of an ``Authorization`` header; raises as ``accept`` does."""
        scheme, _, text = value.partition(" ")
        if scheme.lower() != "negotiate" or not 0 < len(text) <= _MAX_TEXT:
            raise _refused("negotiate.malformed", "not a Negotiate header of allowed length")
        try:
            return self.accept(base64.b64decode(text, validate=True), binding, demanded=demanded)
        except ValueError:
            raise _refused("negotiate.malformed", "not base64") from None

    def accept(self, token: bytes, binding: bytes | None = None, *, demanded: bool = True) -> Negotiated:
        """Accept one token; raises TokenRefused ``negotiate.*``, or Outage where our own keytab fails.

        With ``binding`` the token must carry exactly this as application data of its channel bindings (RFC 2744,
        section 3.11), else PolicyRefused ``negotiate.unbound``: it was made for one request, and whoever carries it
        can't spend it on another. Where it is not ``demanded``, one without any passes as not bound; one that was made
        for something else never does.
        """
        if not 0 < len(token) <= MAX_TOKEN_BYTES:
            raise _refused("negotiate.malformed", "length")
        try:
            return self._deadline.run(lambda: self._step(token, binding, demanded=demanded))
        except Late as late:
            raise _our_side(str(late)) from None

    def _step(self, token: bytes, binding: bytes | None, *, demanded: bool) -> Negotiated:
        bindings = None if binding is None else ChannelBindings(application_data=binding)
        context = gssapi.SecurityContext(creds=self._credential(), channel_bindings=bindings, usage="accept")
        # python-gssapi otherwise keeps an error back as long as there is a token that tells the other side of it.
        context.__DEFER_STEP_ERRORS__ = False  # type: ignore[attr-defined]
        try:
            reply = context.step(token)
        except DuplicateTokenError as error:
            raise _refused("negotiate.replayed", error.gen_message()) from error
        except BadChannelBindingsError as error:
            raise _unbound() from error
        except GSSError as error:
            raise _refused("negotiate.refused", error.gen_message()) from error
        if not context.complete:
            raise _refused("negotiate.multi_leg", "the token needs a second leg")
        # Without bindings from the initiator MIT's acceptor is content, and only does not set the flag.
        bound = binding is not None and gssapi.RequirementFlag.channel_bound in context.actual_flags
        if binding is not None and demanded and not bound:
            raise _unbound()
        return Negotiated(self._initiator(context), reply or b"", bound)

    def _initiator(self, context: gssapi.SecurityContext) -> str:
        name = str(context.initiator_name)
        if context.mech != gssapi.MechType.kerberos or not _PRINCIPAL.fullmatch(name):
            raise _refused("negotiate.refused", f"initiator {name!r} by {context.mech}")
        if name.rpartition("@")[2] != self._realm:
            raise _refused("negotiate.foreign_realm", f"initiator {name!r}")
        return name

    def _credential(self) -> gssapi.Credentials:
        try:
            return gssapi.Credentials(
                name=gssapi.Name(self._principal, gssapi.NameType.kerberos_principal),
                lifetime=None,
                mechs=[gssapi.MechType.kerberos, gssapi.OID.from_int_seq("1.3.6.1.5.5.2")],
                usage="accept",
                store=self._store,
            )
        except GSSError as error:
            raise _our_side(error.gen_message()) from error


def _refused(code: str, why: str) -> BridgeError:
    return TokenRefused(
        code,
        "The request does not prove by Kerberos who sent it.",
        "Send one fresh Negotiate token for the bridge's HTTP service in each request.",
        why=why,
    )


def _unbound() -> BridgeError:
    return PolicyRefused(
        "negotiate.unbound",
        "The Kerberos token was not made for this request.",
        "Bring both sides to the same release of the bridge; if they are, look into who came between.",
    )


def _our_side(why: str) -> BridgeError:
    return Outage(
        "negotiate.unavailable",
        "The bridge can't check Kerberos tokens at the moment.",
        "Retry; if it lasts, an operator checks the bridge's HTTP keytab.",
        why=why,
    )
