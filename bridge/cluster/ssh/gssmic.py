"""The authentication method gssapi-with-mic (RFC 4462 section 3) for paramiko, with a credential that is passed in.

paramiko 5 has no GSSAPI any more, and older ones take only the process's default credential cache; so the method is
ours, on the seams that paramiko has for authentication methods. They are half private: a test against a real sshd holds
them to what is used here.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import gssapi
import paramiko
from gssapi.raw.misc import GSSError
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import (
    MSG_USERAUTH_GSSAPI_ERROR,
    MSG_USERAUTH_GSSAPI_ERRTOK,
    MSG_USERAUTH_GSSAPI_MIC,
    MSG_USERAUTH_GSSAPI_RESPONSE,
    MSG_USERAUTH_GSSAPI_TOKEN,
    MSG_USERAUTH_REQUEST,
)
from paramiko.transport import ServiceRequestingTransport

from bridge.cluster.ssh.endpoint import Endpoint
from bridge.cluster.ssh.faults import clock_skew, kerberos_failed
from bridge.errors import BridgeError, Defect

AUTH_SECONDS: Final = 15.0

_METHOD: Final = "gssapi-with-mic"
_SERVICE: Final = "ssh-connection"
_KRB5: Final = gssapi.MechType.kerberos
_KRB5_OID: Final = bytes.fromhex("06092a864886f712010202")
_SKEWED: Final = frozenset((-1765328384 + code) % 2**32 for code in (32, 33, 37))
"""KRB_AP_ERR_TKT_EXPIRED, _TKT_NYV and _SKEW (RFC 4120 section 7.5.9) above ERROR_TABLE_BASE_krb5, as GSSAPI has it."""
_FLAGS: Final = int(gssapi.RequirementFlag.mutual_authentication) | int(gssapi.RequirementFlag.integrity)
_NO_CBC_NO_SHA1: Final[Mapping[str, list[str]]] = {
    "ciphers": ["aes128-cbc", "aes192-cbc", "aes256-cbc", "3des-cbc"],
    "macs": ["hmac-sha1", "hmac-md5", "hmac-sha1-96", "hmac-md5-96"],
}


class Exchange:
    """One GSSAPI context towards a login node, and the rules that it must have kept at the end."""

    def __init__(self, endpoint: Endpoint, principal: str, credential: gssapi.Credentials) -> None:
        self._principal = principal
        self.mic_sent = False
        try:
            self._context = gssapi.SecurityContext(
                # A full principal name, so that libkrb5 asks no DNS and follows no referral.
                name=gssapi.Name(f"host/{endpoint.host}@{endpoint.realm}", gssapi.NameType.kerberos_principal),
                creds=credential,
                flags=_FLAGS,
                mech=_KRB5,
                lifetime=None,
                usage="initiate",
            )
        except GSSError as error:
            raise kerberos_failed(error.gen_message()) from error
        # python-gssapi otherwise keeps an error back as long as there is a token that tells the other side of it.
        self._context.__DEFER_STEP_ERRORS__ = False  # type: ignore[attr-defined]

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        try:
            return self._context.step(token)  # type: ignore[no-any-return]
        except GSSError as error:
            raise kerberos_failed(error.gen_message()) from error

    def refusal(self, error_token: bytes) -> BridgeError:
        """Give the error that the server tells of in a KRB-ERROR (RFC 4121 section 4.1).

        Our tickets have just been made, or the connection would not be tried: where the server finds one too young or
        too old, it is about its clock.
        """
        try:
            self._context.step(error_token)
        except GSSError as error:
            made = clock_skew if error.min_code in _SKEWED else kerberos_failed
            return made(error.gen_message())
        return kerberos_failed("the server sent an error token")

    def sign(self, message: bytes) -> bytes:
        self.mic_sent = True
        return self._context.get_signature(message)

    def require_complete(self) -> None:
        """Pass if the server proved itself, nothing was delegated and we are who we meant to be; raises Defect."""
        flags = int(self._context.actual_flags) if self.complete else 0
        if not self.mic_sent or flags & _FLAGS != _FLAGS or flags & gssapi.RequirementFlag.delegate_to_peer:
            raise Defect(
                "ssh.gssapi_rule",
                "The login node let the bridge in without the proofs that both sides owe.",
                "An operator looks at the login node's SSH server.",
                mic_sent=self.mic_sent,
                flags=flags,
            )
        name = str(self._context.initiator_name)
        if name != self._principal:
            raise Defect(
                "ssh.wrong_person",
                "The connection to the login node was made as somebody else.",
                "Give the reference to the operators of the bridge; the connection was closed.",
                expected=self._principal,
                got=name,
            )


class GssTransport(ServiceRequestingTransport):
    """A transport that knows gssapi-with-mic, and waits for the server's consent to authentication within a bound."""

    # One pass in C for each packet; CTR with a MAC is hashed in Python's hands, at a third of the speed.
    _preferred_ciphers = ("aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "aes256-ctr", "aes128-ctr")

    def __init__(self, sock: socket.socket, host_key_algorithms: Sequence[str]) -> None:
        super().__init__(sock, disabled_algorithms=_NO_CBC_NO_SHA1, strict_kex=True)
        self._host_key_algorithms = tuple(host_key_algorithms)
        self._host_key: bytes | None = None
        self._accepted = threading.Event()

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """The offer of host key algorithms; paramiko's own puts every certificate behind every bare key."""
        return self._host_key_algorithms

    def _verify_key(self, host_key: bytes, sig: bytes) -> None:
        """Check the signature of a key exchange, and that the first one's key signs the later ones too.

        Their hashes are not bound to the session (RFC 4253 section 8): another key would be another server.
        """
        super()._verify_key(host_key, sig)  # type: ignore[misc]
        if self._host_key is not None and host_key != self._host_key:
            raise paramiko.SSHException("the server changed its host key on the way")
        self._host_key = host_key

    def get_auth_handler(self) -> _GssAuthHandler:
        return _GssAuthHandler(self)

    def _parse_service_accept(self, message: paramiko.Message) -> None:
        super()._parse_service_accept(message)  # type: ignore[misc]
        self._accepted.set()

    @property
    def strict(self) -> bool:
        """True if both sides agreed on strict key exchange."""
        return bool(self.agreed_on_strict_kex)  # type: ignore[attr-defined]

    def ensure_session(self) -> None:
        """Ask for the authentication service once (RFC 4253 section 10); paramiko's own waits without a bound."""
        request = paramiko.Message()
        request.add_byte(paramiko.common.cMSG_SERVICE_REQUEST)
        request.add_string("ssh-userauth")
        self._send_message(request)  # type: ignore[attr-defined]
        end = time.monotonic() + AUTH_SECONDS
        while not self._accepted.wait(0.2):
            if not self.is_active() or time.monotonic() > end:
                raise paramiko.AuthenticationException("the server does not offer authentication")
        self.auth_handler = self.get_auth_handler()

    def auth_gssapi(self, account: str, exchange: Exchange) -> None:
        """Authenticate; raises paramiko's exceptions, and what the exchange raises."""
        self.ensure_session()
        handler = self.auth_handler
        assert isinstance(handler, _GssAuthHandler)  # noqa: S101 - made two lines up
        if handler.auth_gssapi(account, exchange):
            raise paramiko.AuthenticationException("the server wants another method too")


class _GssAuthHandler(AuthOnlyHandler):
    """The client's side of RFC 4462 section 3; its handlers run on the transport's thread."""

    _exchange: Exchange
    _account: str

    def auth_gssapi(self, account: str, exchange: Exchange) -> Any:
        """Send the request (section 3.2) and wait for the end; gives the methods that the server wants besides."""
        self._exchange = exchange
        self.auth_method = _METHOD
        self.username = self._account = account
        # paramiko's send_auth_request() sets this after sending and so can miss a quick answer.
        self.auth_event = threading.Event()
        request = self._message(MSG_USERAUTH_REQUEST)
        request.add_string(account)
        request.add_string(_SERVICE)
        request.add_string(_METHOD)
        request.add_int(1)
        request.add_string(_KRB5_OID)
        self._send(request)
        return self.wait_for_response(self.auth_event)

    @property
    def _client_handler_table(self) -> dict[int, Any]:
        table: dict[int, Any] = super()._client_handler_table  # type: ignore[misc]
        return table | {
            MSG_USERAUTH_GSSAPI_RESPONSE: self._parse_response,
            MSG_USERAUTH_GSSAPI_TOKEN: self._parse_token,
            MSG_USERAUTH_GSSAPI_ERROR: self._parse_error,
            MSG_USERAUTH_GSSAPI_ERRTOK: self._parse_error_token,
        }

    def _parse_response(self, message: paramiko.Message) -> None:
        if message.get_string() != _KRB5_OID:
            raise paramiko.SSHException("the server chose a mechanism that was not offered")
        self._advance(None)

    def _parse_token(self, message: paramiko.Message) -> None:
        self._advance(message.get_string())

    def _parse_error(self, message: paramiko.Message) -> None:
        major, minor, text = message.get_int(), message.get_int(), message.get_string()
        raise kerberos_failed(f"the server's GSSAPI failed: {major}/{minor} {text[:200]!r}")

    def _parse_error_token(self, message: paramiko.Message) -> None:
        raise self._exchange.refusal(message.get_string())

    def _advance(self, token: bytes | None) -> None:
        reply = self._exchange.step(token)
        if reply:
            answer = self._message(MSG_USERAUTH_GSSAPI_TOKEN)
            answer.add_string(reply)
            self._send(answer)
        if self._exchange.complete and not self._exchange.mic_sent:
            answer = self._message(MSG_USERAUTH_GSSAPI_MIC)
            answer.add_string(self._exchange.sign(self._bound_request()))
            self._send(answer)

    def _bound_request(self) -> bytes:
        """What the MIC covers: the request, bound to this session (section 3.5)."""
        message = paramiko.Message()
        message.add_string(self._session_id())
        message.add_byte(bytes((MSG_USERAUTH_REQUEST,)))
        message.add_string(self._account)
        message.add_string(_SERVICE)
        message.add_string(_METHOD)
        return message.asbytes()

    def _session_id(self) -> bytes:
        session_id = self.transport.session_id
        if session_id is None:
            raise paramiko.SSHException("no session to bind to")
        return session_id

    def _message(self, kind: int) -> paramiko.Message:
        message = paramiko.Message()
        message.add_byte(bytes((kind,)))
        return message

    def _send(self, message: paramiko.Message) -> None:
        # The seam that paramiko's own handlers use.
        self.transport._send_message(message)  # type: ignore[attr-defined]  # noqa: SLF001
