"""Shows the bridge who calls, with the person's own ticket: one HTTP ``Negotiate`` token, and the answer to it.

For the tools that people run, never for a service: what speaks here is the person's default credential cache, as
libkrb5 finds it (kinit(1), krb5.conf(5) ``default_ccache_name``). RFC 4559 with bare Kerberos (RFC 4121), which the
bridge takes as well as SPNEGO: nothing is negotiated, and libkrb5's own error codes stay readable. One token for each
request, mutual authentication, and nothing is delegated.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final, Protocol

import gssapi
from gssapi.raw import ChannelBindings
from gssapi.raw.misc import GSSError

from bridge.errors import BridgeError, Defect, Outage, RequestRefused
from bridge.kerberos.deadline import Deadline, Late
from bridge.kerberos.targets import target_principal

_KRB5: Final = gssapi.MechType.kerberos

_FLAGS: Final = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.out_of_sequence_detection
_NEVER: Final = gssapi.RequirementFlag.delegate_to_peer | gssapi.RequirementFlag.anonymity

_REPLY: Final = re.compile(r"Negotiate ([A-Za-z0-9+/]+={0,2})", re.ASCII | re.IGNORECASE)
_MAX_REPLY: Final = 64 * 1024

_TABLE_BASE: Final = -1765328384
"""ERROR_TABLE_BASE_krb5 (krb5_err.et)."""
_NOT_YET: Final = 33
"""KRB5KRB_AP_ERR_TKT_NYV."""
_NO_TICKET: Final = frozenset({32, _NOT_YET, 181, 193, 195, 213, 243})
"""KRB5KRB_AP_ERR_TKT_EXPIRED, ..._TKT_NYV, KRB5_CC_BADNAME, KRB5_FCC_PERM, KRB5_FCC_NOFILE, KRB5_CC_END and
KRB5_CC_NOTFOUND: there is no cache, or nothing in it that serves."""
_UNKNOWN_SERVER: Final = 7
_SKEWED: Final = frozenset({37, 148})
_NO_KDC: Final = frozenset({29, 154, 156, 220})


class Proof(Protocol):
    """What shows, in one request, who calls; and checks, in its answer, who answered."""

    @property
    def header(self) -> str:
        """The value of the request's ``Authorization``."""
        ...

    def check(self, authenticate: str | None) -> None:
        """Check the answer's ``WWW-Authenticate``; raises Defect ``kerberos.server_unproven``."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """One token, and the context that waits for the server's part."""

    header: str = field(repr=False)
    _context: gssapi.SecurityContext = field(repr=False)

    def check(self, authenticate: str | None) -> None:
        """See Proof. Only the holder of the service's key can make what passes."""
        try:
            match = _REPLY.fullmatch(authenticate or "")
            if match is None or len(match[1]) > _MAX_REPLY:
                raise _unproven("no Negotiate reply")
            more = self._context.step(base64.b64decode(match[1], validate=True))
            if more or not self._context.complete:
                raise _unproven("the exchange is not complete")
            if not self._context.actual_flags & gssapi.RequirementFlag.mutual_authentication:
                raise _unproven("not mutual")
        except GSSError as error:
            raise _unproven(error.gen_message()) from error
        except ValueError as error:
            raise _unproven("not base64") from error


class Initiator:
    """Makes tokens for ``HTTP/<host>``, each from the person's default credentials as they are then."""

    def __init__(self, host: str, realm: str | None = None, *, deadline: Deadline | None = None) -> None:
        """``host``: the server's full name as its principal has it, lower case; libkrb5 never asks DNS about it.

        ``realm``: the server's; without one that of the person's ticket, since the bridge answers no other.
        """
        self._host = host
        self._realm = realm
        self._deadline = deadline or Deadline()

    def begin(self, binding: bytes | None = None) -> Exchange:
        """Return a fresh token and what checks its answer; with ``binding`` it is for that request and no other.

        Raises RequestRefused ``kerberos.no_ticket``, ``kerberos.server_unknown``, ``kerberos.target_malformed``,
        Outage ``kerberos.kdc_unreachable``, ``kerberos.clock_skew``, ``kerberos.failed``.
        """
        try:
            return self._deadline.run(lambda: self._begin(binding))
        except Late as late:
            raise _no_kdc(str(late)) from None

    def _begin(self, binding: bytes | None) -> Exchange:
        bindings = None if binding is None else ChannelBindings(application_data=binding)
        try:
            credential = gssapi.Credentials(name=None, lifetime=None, mechs=[_KRB5], usage="initiate", store=None)
            context = gssapi.SecurityContext(
                name=self._service(credential),
                creds=credential,
                lifetime=None,
                flags=_FLAGS,
                mech=_KRB5,
                channel_bindings=bindings,
                usage="initiate",
            )
            # python-gssapi otherwise keeps an error back as long as there is a token that tells the other side of it.
            context.__DEFER_STEP_ERRORS__ = False  # type: ignore[attr-defined]
            token = context.step()
        except GSSError as error:
            raise self._fault(error) from error
        if not token or context.actual_flags & _NEVER:
            raise _failed("no token, or one that gives more than was asked for")
        return Exchange("Negotiate " + base64.b64encode(token).decode("ascii"), context)

    def _service(self, credential: gssapi.Credentials) -> gssapi.Name:
        """The principal itself: a host-based name could be canonicalised by DNS (krb5.conf(5))."""
        realm = self._realm or str(credential.name).rpartition("@")[2]
        return gssapi.Name(target_principal(f"HTTP/{self._host}", realm), gssapi.NameType.kerberos_principal)

    def _fault(self, error: GSSError) -> BridgeError:
        text, code = error.gen_message(), _offset(error.min_code)
        if isinstance(error, _CREDENTIAL_ERRORS) or code in _NO_TICKET:
            return RequestRefused(
                "kerberos.no_ticket", "You have no valid Kerberos ticket.", "Run kinit, then try again.", why=text
            )
        if code == _UNKNOWN_SERVER:
            return RequestRefused(
                "kerberos.server_unknown",
                f"Your Kerberos realm knows no service HTTP/{self._host}.",
                "Give the bridge's address with the full host name that its administrators tell you.",
                why=text,
            )
        if code in _SKEWED:
            return Outage(
                "kerberos.clock_skew",
                "The clocks of this machine and the KDC differ too much.",
                "Have this machine's clock set, then try again.",
                why=text,
            )
        return _no_kdc(text) if code in _NO_KDC else _failed(text)


_CREDENTIAL_ERRORS: Final = (
    gssapi.exceptions.MissingCredentialsError,
    gssapi.exceptions.ExpiredCredentialsError,
    gssapi.exceptions.InvalidCredentialsError,
)


def _offset(minor: int) -> int:
    signed = minor - (1 << 32) if minor >= 1 << 31 else minor
    return signed - _TABLE_BASE


def _no_kdc(why: str) -> Outage:
    return Outage(
        "kerberos.kdc_unreachable",
        "No KDC of the Kerberos realm answered in time.",
        "Check this machine's network and krb5.conf, then try again.",
        why=why,
    )


def _failed(why: str) -> Outage:
    return Outage(
        "kerberos.failed",
        "The Kerberos exchange failed for a reason that the bridge does not know.",
        "Check with klist and 'kvno HTTP/<the bridge's host>' what your ticket is good for.",
        why=why,
    )


def _unproven(why: str) -> Defect:
    return Defect(
        "kerberos.server_unproven",
        "The server has not proven by Kerberos that it is the bridge, so its answer is not believed.",
        "Check the server's address, and tell the bridge's operators; see there whether what you asked for was done.",
        why=why,
    )
