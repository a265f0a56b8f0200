"""SSH against a real sshd, and against servers that lie: the right person at the right host, or no connection."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import paramiko
import pytest
from bridge_side import LOGIN, MDS1, BridgeSide, bridge_side
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from paramiko.auth_handler import AuthHandler
from paramiko.common import (
    AUTH_SUCCESSFUL,
    MSG_USERAUTH_GSSAPI_RESPONSE,
    MSG_USERAUTH_GSSAPI_TOKEN,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)

from bridge.cluster.ssh import Endpoint, HostKeys, SshConnection, connect, connection
from bridge.cluster.ssh.gssmic import Exchange, GssTransport
from bridge.errors import BridgeError, Defect, Outage, PolicyRefused
from bridge.kerberos.holding import hold
from realm import Realm
from realm.login import SSHD


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


def _connect(side: BridgeSide, account: str = "alice", **changes: object) -> SshConnection:
    bundle = side.tickets(str(changes.pop("ticket_of", account)), (LOGIN, MDS1))
    principal = str(changes.pop("principal", bundle.principal))
    keys = HostKeys(side.known_hosts)
    endpoint = replace(side.endpoint, **changes)  # type: ignore[arg-type]
    with hold(bundle) as credential:
        return connect(endpoint, account, principal, credential, keys)


def _code(side: BridgeSide, account: str = "alice", **changes: object) -> tuple[type[BridgeError], str]:
    with pytest.raises(BridgeError) as caught:
        _connect(side, account, **changes)
    assert caught.value.remedy
    return type(caught.value), caught.value.code


@pytest.mark.parametrize(("account", "uid"), [("alice", 20001), ("bob", 20002)])
def test_the_agent_runs_as_the_person(side: BridgeSide, account: str, uid: int) -> None:
    session = side.login(account)
    hello = session.hello()
    session.close()
    assert (hello.user, hello.uid, hello.host) == (account, uid, "login.realm.test")


def test_two_people_at_once_stay_apart(side: BridgeSide) -> None:
    alice, bob = side.login("alice"), side.login("bob")
    assert [(alice.hello().user, bob.hello().user) for _ in range(20)] == [("alice", "bob")] * 20
    alice.close()
    bob.close()


def test_a_session_outlives_its_credential_and_dies_with_the_connection(side: BridgeSide) -> None:
    session = side.login()
    assert session.hello().uid == 20001
    session.close()
    assert not session.alive
    with pytest.raises(Outage, match=r"login\.connection_lost"):
        session.hello()


def test_the_kdc_is_not_needed_to_connect(side: BridgeSide) -> None:
    bundle = side.tickets()
    side.realm.stop_service("krb5kdc")
    try:
        with hold(bundle) as credential:
            made = connect(side.endpoint, "alice", bundle.principal, credential, HostKeys(side.known_hosts))
        assert made.alive
        made.close()
    finally:
        side.realm.restart_service("krb5kdc")


@pytest.mark.threat("T33")
def test_nothing_is_delegated(side: BridgeSide) -> None:
    acceptor = side.acceptor("login", "/etc/krb5.keytab")
    with hold(side.tickets()) as credential:
        exchange = Exchange(side.endpoint, "alice@REALM.TEST", credential)
        exchange.step(acceptor.step(exchange.step(None)))
    assert exchange.complete
    assert "delegate_to_peer" not in repr(acceptor.actual_flags)
    assert "mutual_authentication" in repr(acceptor.actual_flags)
    assert acceptor.delegated_creds is None
    login = side.realm.host("login")
    before = login.run(["ls", "/tmp"]).stdout
    session = side.login()
    assert login.run(["ls", "/tmp"]).stdout == before
    session.close()


@pytest.mark.threat("T33")
def test_a_wrong_host_key_is_never_gone_past(side: BridgeSide) -> None:
    other = paramiko.Ed25519Key.from_private_key(_new_key())
    side.known_hosts.write_text(f"login.realm.test {other.get_name()} {other.get_base64()}\n")
    assert _code(side) == (Defect, "ssh.host_key")


@pytest.mark.threat("T33")
def test_a_host_known_by_a_key_of_another_type_is_refused(side: BridgeSide) -> None:
    other = paramiko.RSAKey.generate(2048)
    side.known_hosts.write_text(f"login.realm.test {other.get_name()} {other.get_base64()}\n")
    assert _code(side) == (Defect, "ssh.host_key")


@pytest.mark.threat("T33")
def test_an_unknown_host_is_refused_and_not_added(side: BridgeSide) -> None:
    side.known_hosts.write_text("")
    assert _code(side) == (Defect, "ssh.host_key")
    assert side.known_hosts.read_text() == ""


@pytest.mark.threat("T33")
def test_the_key_of_one_host_does_not_do_for_another(side: BridgeSide) -> None:
    assert _code(side, host="other.realm.test") == (Defect, "ssh.host_key")
    # The same address on another port is another server.
    with _server(side, strict=True) as port:
        assert _code(side, port=port, address="127.0.0.1") == (Defect, "ssh.host_key")


def test_an_unreadable_list_of_keys_is_a_defect(side: BridgeSide) -> None:
    with pytest.raises(Defect, match=r"ssh\.known_hosts"):
        HostKeys(side.scratch / "missing")


@pytest.mark.threat("T33")
def test_a_server_without_strict_key_exchange_is_refused(side: BridgeSide) -> None:
    with _server(side, strict=False, pin=True) as port:
        assert _code(side, port=port, address="127.0.0.1") == (Defect, "ssh.strict_kex")


@pytest.mark.threat("T33")
def test_a_server_that_lets_everybody_in_is_refused(side: BridgeSide) -> None:
    """paramiko's server answers a method that it does not know as it answers "none"; this one says yes."""
    with _server(side, strict=True, pin=True) as port:
        assert _code(side, port=port, address="127.0.0.1") == (Defect, "ssh.gssapi_rule")


@pytest.mark.threat("T33")
@pytest.mark.parametrize("says_yes_at", [MSG_USERAUTH_REQUEST, MSG_USERAUTH_GSSAPI_TOKEN], ids=["request", "token"])
def test_a_server_that_skips_the_proofs_is_refused(side: BridgeSide, says_yes_at: int) -> None:
    """It lets the bridge in before it has shown that it has the keytab, and without waiting for our MIC."""
    with _server(side, strict=True, pin=True, auth=partial(_Skipping, says_yes_at)) as port:
        assert _code(side, port=port, address="127.0.0.1") == (Defect, "ssh.gssapi_rule")


@pytest.mark.threat("T33")
def test_a_service_that_may_be_delegated_to_gets_nothing_either(side: BridgeSide) -> None:
    """With this flag in the ticket a client with GSS_C_DELEG_POLICY_FLAG, as OpenSSH may be set up, would delegate."""
    side.realm.kdc.modprinc(LOGIN, "+ok_as_delegate")
    try:
        test_nothing_is_delegated(side)
    finally:
        side.realm.kdc.modprinc(LOGIN, "-ok_as_delegate")


@pytest.mark.threat("T33")
def test_a_server_that_changes_its_key_on_the_way_is_left() -> None:
    """The later exchange's key could be the real one, relayed by who showed a false one before; or the reverse."""
    first, other = (paramiko.Ed25519Key.from_private_key(_new_key()) for _ in range(2))
    ours, theirs = socket.socketpair()
    server = paramiko.Transport(theirs, strict_kex=True)
    server.add_server_key(first)
    server.start_server(event=threading.Event(), server=_Everybody())
    client = GssTransport(ours, ["ssh-ed25519"])
    try:
        client.start_client(timeout=20)
        client.renegotiate_keys()
        assert client.get_remote_server_key() == first
        server.server_key_dict = {"ssh-ed25519": other}
        with pytest.raises(paramiko.SSHException, match="changed its host key"):
            client.renegotiate_keys()
        assert not client.is_active()
    finally:
        client.close()
        server.close()


@pytest.mark.sends_wrong_tickets
def test_the_ticket_of_one_person_does_not_open_the_account_of_another(side: BridgeSide) -> None:
    assert _code(side, "alice", ticket_of="bob") == (PolicyRefused, "ssh.refused")
    assert _code(side, "root", ticket_of="alice") == (PolicyRefused, "ssh.refused")
    assert _code(side, "nobody", ticket_of="alice") == (PolicyRefused, "ssh.refused")


def test_a_credential_of_somebody_else_is_found_out(side: BridgeSide) -> None:
    assert _code(side, "alice", principal="bob@REALM.TEST") == (Defect, "ssh.wrong_person")


def test_a_bundle_without_the_login_host_does_not_connect(side: BridgeSide) -> None:
    bundle = side.tickets("alice", (MDS1,))
    with hold(bundle) as credential, pytest.raises(Outage, match=r"ssh\.kerberos"):
        connect(side.endpoint, "alice", bundle.principal, credential, HostKeys(side.known_hosts))


@pytest.fixture
def sshd_with_clock(side: BridgeSide, moved: str) -> Iterator[None]:
    side.realm.stop_service("sshd")
    side.realm.start_service(replace(SSHD, argv=("/usr/bin/faketime", "-f", moved, *SSHD.argv)))
    yield
    side.realm.stop_service("sshd")
    side.realm.start_service(SSHD)


@pytest.mark.threat("T25")
@pytest.mark.usefixtures("sshd_with_clock")
@pytest.mark.parametrize("moved", ["+6m", "-6m", "+1d", "-1d"])
def test_a_node_whose_clock_is_wrong_is_an_outage_that_names_the_clock(side: BridgeSide) -> None:
    assert _code(side) == (Outage, "ssh.clock_skew")


@pytest.mark.usefixtures("sshd_with_clock")
@pytest.mark.parametrize("moved", ["+2m", "-2m"])
def test_minutes_that_kerberos_bears_stop_no_connection(side: BridgeSide) -> None:
    _connect(side).close()


def test_a_server_that_is_down_or_mute_is_an_outage(side: BridgeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BANNER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert _code(side, port=port, address="127.0.0.1") == (Outage, "ssh.unreachable")
    assert _code(side, port=port, address="127.0.0.1") == (Outage, "ssh.unreachable")


def test_a_connection_that_is_cut_fails_what_waits_for_it(side: BridgeSide) -> None:
    session = side.login()
    script = session.run(b"echo here; exec sleep 60", env={})
    output = iter(script)
    assert next(output) == b"here\n"
    side.realm.host("login").run(["/usr/bin/pkill", "-KILL", "-f", "sshd: alice"])
    with pytest.raises(Outage, match=r"login\.connection_lost"):
        next(output)
    assert not session.alive


def test_no_thread_is_left_after_a_refusal(side: BridgeSide) -> None:
    side.known_hosts.write_text("")
    for _ in range(5):
        assert _code(side) == (Defect, "ssh.host_key")
    for thread in threading.enumerate():
        if isinstance(thread, paramiko.Transport):
            thread.join(30)
            assert not thread.is_alive()


class _Everybody(paramiko.ServerInterface):
    """Lets everybody in."""

    def check_auth_none(self, username: str) -> int:
        return AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "gssapi-with-mic"


class _Skipping(AuthHandler):
    """The server's side of RFC 4462 section 3, which says yes at the message ``at``."""

    def __init__(self, at: int, transport: paramiko.Transport) -> None:
        super().__init__(transport)
        self._at = at

    @property
    def _handler_table(self) -> dict[int, Callable[[paramiko.Message], None]]:
        mine = (MSG_USERAUTH_REQUEST, MSG_USERAUTH_GSSAPI_TOKEN)
        table: dict[int, Callable[[paramiko.Message], None]] = super()._server_handler_table  # type: ignore[misc]
        return table | {kind: partial(self._answer, kind) for kind in mine}

    def _answer(self, kind: int, _: paramiko.Message) -> None:
        if kind == self._at:
            self._say(MSG_USERAUTH_SUCCESS)
        else:
            self._say(MSG_USERAUTH_GSSAPI_RESPONSE, bytes.fromhex("06092a864886f712010202"))

    def _say(self, kind: int, *strings: bytes) -> None:
        message = paramiko.Message()
        message.add_byte(bytes((kind,)))
        for string in strings:
            message.add_string(string)
        self.transport._send_message(message)  # type: ignore[attr-defined]


@contextmanager
def _server(
    side: BridgeSide,
    *,
    strict: bool,
    pin: bool = False,
    auth: Callable[[paramiko.Transport], AuthHandler] | None = None,
) -> Iterator[int]:
    """An SSH server of ours on the bridge host's loopback; ``pin`` makes its key a known one."""
    key = paramiko.Ed25519Key.from_private_key(_new_key())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        if pin:
            side.known_hosts.write_text(f"[login.realm.test]:{port} {key.get_name()} {key.get_base64()}\n")

        def serve() -> None:
            with suppress(OSError, paramiko.SSHException, EOFError):
                accepted, _ = listener.accept()
                transport = paramiko.Transport(accepted, strict_kex=strict)
                transport.add_server_key(key)
                if auth is not None:
                    transport.auth_handler = auth(transport)
                transport.start_server(event=threading.Event(), server=_Everybody())
                transport.join(30)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield port
    thread.join(40)


def _new_key() -> io.StringIO:
    form, plain = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, form, plain)
    return io.StringIO(key.decode())


def test_endpoint_names_follow_known_hosts() -> None:
    assert Endpoint("a.b", 22, "R").known_as == "a.b"
    assert Endpoint("a.b", 2222, "R").known_as == "[a.b]:2222"
