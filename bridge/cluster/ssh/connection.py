"""Connects to a login node as one person and gives a pipe to a command there.

Host keys are pinned or certified by a pinned authority, strict key exchange is required, the target is
``host/<configured name>@REALM`` without a look-up in DNS, and no agent, port, display or credential is forwarded.
"""

from __future__ import annotations

import socket
from typing import Final

import gssapi
import paramiko

from bridge.cluster.ssh.endpoint import Endpoint
from bridge.cluster.ssh.faults import kerberos_failed, refused, timeout, unreachable
from bridge.cluster.ssh.gssmic import AUTH_SECONDS, Exchange, GssTransport
from bridge.cluster.ssh.hostkeys import HostKeys
from bridge.errors import Defect

Credential = gssapi.Credentials
"""What the callers of ``connect`` pass in; made by the room of Kerberos."""

CONNECT_SECONDS: Final = 5.0
BANNER_SECONDS: Final = 10.0
CHANNEL_SECONDS: Final = 15.0

_STDERR_KEPT: Final = 2048


class SshConnection:
    """An authenticated connection; ``run`` opens one channel on it."""

    def __init__(self, transport: GssTransport) -> None:
        self._transport = transport

    def run(self, command: str) -> SshPipe:
        """Start a command (a constant; the server's ForceCommand decides anyway) and give its pipe; raises Outage."""
        try:
            channel = self._transport.open_session(timeout=CHANNEL_SECONDS)
            channel.settimeout(CHANNEL_SECONDS)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise unreachable(error) from error
        return SshPipe(channel, self)

    @property
    def alive(self) -> bool:
        """True as long as the connection is up."""
        return bool(self._transport.is_active())

    def close(self) -> None:
        """Close it and everything on it."""
        self._transport.close()


class SshPipe:
    """Standard input and output of a command at the other end; closing it closes its connection."""

    def __init__(self, channel: paramiko.Channel, connection: SshConnection) -> None:
        self._channel = channel
        self._connection = connection
        self._stderr = b""

    def send(self, data: bytes) -> None:
        """Send all of it; raises OSError."""
        try:
            self._channel.sendall(data)
        except paramiko.SSHException as error:
            raise OSError(str(error)) from error

    def receive(self, seconds: float) -> bytes:
        """Give what has come, empty at the end of the stream; raises TimeoutError, OSError."""
        self._channel.settimeout(seconds)
        try:
            return self._channel.recv(1 << 18)
        finally:
            self._drain_stderr()

    @property
    def last_words(self) -> str:
        """The end of what came on standard error, for the audit log."""
        return self._stderr.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the channel and its connection."""
        self._channel.close()
        self._connection.close()

    def _drain_stderr(self) -> None:
        # Unread bytes would use up the window that standard output needs too.
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(1 << 16))[-_STDERR_KEPT:]


def connect(endpoint: Endpoint, account: str, principal: str, credential: Credential, keys: HostKeys) -> SshConnection:
    """Log in as ``account`` with ``credential``, which must be of ``principal``.

    Raises Outage ``ssh.unreachable``, ``ssh.timeout``, ``ssh.kerberos``; PolicyRefused ``ssh.refused`` where the node
    knows who it is and does not let them in; Defect ``ssh.host_key``, ``ssh.strict_kex``, ``ssh.wrong_person``.
    """
    transport = _open(endpoint, keys.algorithms(endpoint))
    try:
        _exchange_keys(transport, endpoint, keys)
        exchange = Exchange(endpoint, principal, credential)
        _authenticate(transport, account, exchange)
        exchange.require_complete()
        transport.set_keepalive(30)
    except BaseException:
        transport.close()
        raise
    return SshConnection(transport)


class _PromptSocket(socket.socket):
    """A TCP socket that acknowledges at once.

    sshd leaves Nagle's algorithm on until a session has begun, and then waits for our acknowledgement between any two
    of its small packets; Linux delays that by 40 ms when we have nothing to send (tcp(7), TCP_QUICKACK, not permanent).
    """

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data = super().recv(bufsize, flags)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


def _open(endpoint: Endpoint, host_key_algorithms: list[str]) -> GssTransport:
    try:
        plain = socket.create_connection((endpoint.address or endpoint.host, endpoint.port), CONNECT_SECONDS)
    except OSError as error:
        raise unreachable(error) from error
    sock = _PromptSocket(fileno=plain.detach())
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    transport = GssTransport(sock, host_key_algorithms)
    transport.banner_timeout = BANNER_SECONDS
    transport.auth_timeout = AUTH_SECONDS
    transport.use_compression(compress=False)
    return transport


def _exchange_keys(transport: GssTransport, endpoint: Endpoint, keys: HostKeys) -> None:
    try:
        transport.start_client(timeout=BANNER_SECONDS)
        shown = transport.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise unreachable(error) from error
    keys.require(endpoint, shown)
    if not transport.strict:
        raise Defect(
            "ssh.strict_kex",
            "The login node's SSH server does not know strict key exchange, which closes CVE-2023-48795.",
            "An operator updates the SSH server on the login node.",
            host=endpoint.host,
            version=transport.remote_version,
        )


def _authenticate(transport: GssTransport, account: str, exchange: Exchange) -> None:
    try:
        transport.auth_gssapi(account, exchange)
    except paramiko.BadAuthenticationType as error:
        raise kerberos_failed(f"the server offers {error.allowed_types}") from error
    except paramiko.AuthenticationException as error:
        if "timeout" in str(error).lower():
            raise timeout() from error
        raise (refused(account) if exchange.mic_sent else kerberos_failed(str(error))) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise unreachable(error) from error
