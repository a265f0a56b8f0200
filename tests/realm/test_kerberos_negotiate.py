"""HTTP Negotiate with the realm's HTTP/ keytab: who sent a request, and what does not pass for proof."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path

import gssapi
import pytest
from bridge_side import KERBEROS_NAME, KRB5, LOGIN, REALM_NAME, BridgeSide, bridge_side
from gssapi.raw import ChannelBindings

from bridge.errors import BridgeError, Outage, PolicyRefused, TokenRefused
from bridge.kerberos.negotiate import Acceptor
from realm import Realm
from realm.principals import BRIDGE_HTTP, HTTP_KEYTAB
from runner.binding import node_binding

SPNEGO = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
SERVICE = f"{BRIDGE_HTTP}@{REALM_NAME}"


class Client:
    """A node that authenticates with its host keytab, as the node agent does."""

    def __init__(self, side: BridgeSide, host: str = "node1") -> None:
        keytab = side.realm.host(host).path("/etc/krb5.keytab")
        self.name = f"host/{host}.realm.test@{REALM_NAME}"
        self._credential = gssapi.Credentials(
            name=gssapi.Name(self.name, KERBEROS_NAME),
            usage="initiate",
            mechs=[KRB5, SPNEGO],
            store={"client_keytab": f"FILE:{keytab}", "ccache": f"FILE:{side.scratch / host}.ccache"},
        )

    def context(
        self, mech: gssapi.OID = KRB5, server: str = SERVICE, extra: int = 0, binding: bytes | None = None
    ) -> gssapi.SecurityContext:
        """A context towards the bridge that has not begun."""
        flags = int(gssapi.RequirementFlag.mutual_authentication) | extra
        name = gssapi.Name(server, KERBEROS_NAME)
        bound = None if binding is None else ChannelBindings(application_data=binding)
        return gssapi.SecurityContext(
            name=name, creds=self._credential, mech=mech, usage="initiate", flags=flags, channel_bindings=bound
        )


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


@pytest.fixture
def acceptor(side: BridgeSide) -> Acceptor:
    return Acceptor(SERVICE, str(side.realm.host("bridge").path(HTTP_KEYTAB)), str(side.scratch / "http.rcache"))


def _header(token: bytes | None) -> str:
    assert token
    return "Negotiate " + base64.b64encode(token).decode()


@pytest.mark.parametrize("mech", [KRB5, SPNEGO], ids=["krb5", "spnego"])
def test_tells_who_sent_the_request_and_proves_itself(side: BridgeSide, acceptor: Acceptor, mech: gssapi.OID) -> None:
    client = Client(side)
    context = client.context(mech)
    accepted = acceptor.accept_header(_header(context.step()))
    assert accepted.principal == client.name
    context.step(accepted.reply)
    assert context.complete
    assert repr(accepted.reply) not in repr(accepted)


def test_nodes_are_told_apart(side: BridgeSide, acceptor: Acceptor) -> None:
    for host in ("node1", "node2", "login"):
        client = Client(side, host)
        assert acceptor.accept_header(_header(client.context(SPNEGO).step())).principal == client.name


@pytest.mark.parametrize("mech", [KRB5, SPNEGO], ids=["krb5", "spnego"])
def test_a_token_works_once(side: BridgeSide, acceptor: Acceptor, mech: gssapi.OID) -> None:
    header = _header(Client(side).context(mech).step())
    acceptor.accept_header(header)
    again = Acceptor(SERVICE, str(side.realm.host("bridge").path(HTTP_KEYTAB)), str(side.scratch / "http.rcache"))
    for one in (acceptor, again):
        with pytest.raises(TokenRefused):
            one.accept_header(header)


def test_of_many_who_present_one_token_one_gets_in(side: BridgeSide, acceptor: Acceptor) -> None:
    header, results, gate = _header(Client(side).context(SPNEGO).step()), list[str](), threading.Barrier(16)

    def present() -> None:
        gate.wait(30)
        try:
            results.append(acceptor.accept_header(header).principal)
        except BridgeError as error:
            results.append(error.code)

    threads = [threading.Thread(target=present) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 16
    assert results.count("host/node1.realm.test@REALM.TEST") == 1


def test_a_context_that_needs_a_second_leg_is_refused(side: BridgeSide, acceptor: Acceptor) -> None:
    context = Client(side).context(extra=int(gssapi.RequirementFlag.dce_style))
    with pytest.raises(TokenRefused, match=r"negotiate\.multi_leg"):
        acceptor.accept_header(_header(context.step()))


def test_a_ticket_for_another_service_is_refused(side: BridgeSide, acceptor: Acceptor) -> None:
    context = Client(side).context(server=f"{LOGIN}@{REALM_NAME}")
    with pytest.raises(TokenRefused, match=r"negotiate\.refused"):
        acceptor.accept_header(_header(context.step()))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Negotiate",
        "Negotiate ",
        "Negotiate !!!!",
        "Negotiate AAAA",
        "Negotiate YII=",
        "Basic YWxpY2U6eA==",
        "Bearer x",
        "Negotiate TlRMTVNTUAABAAAAl4II4gAAAAAAAAAAAAAAAAAAAAAKAO5CAAAADw==",
        "Negotiate " + "A" * 200_000,
        "Negotiate é",
    ],
    ids=range(11),
)
def test_what_is_no_token_is_refused(acceptor: Acceptor, header: str) -> None:
    with pytest.raises(TokenRefused) as caught:
        acceptor.accept_header(header)
    assert caught.value.code in ("negotiate.malformed", "negotiate.refused")


def test_a_changed_token_is_refused(side: BridgeSide, acceptor: Acceptor) -> None:
    token = Client(side).context(SPNEGO).step()
    assert token
    for place in (10, len(token) // 2, len(token) - 1):
        changed = bytearray(token)
        changed[place] ^= 1
        with pytest.raises(TokenRefused):
            acceptor.accept(bytes(changed))


def test_a_person_is_named_as_such(side: BridgeSide, acceptor: Acceptor) -> None:
    keytab = side.realm.host("desk").path(side.realm.user_keytab("alice"))
    credential = gssapi.Credentials(
        name=gssapi.Name("alice@REALM.TEST", KERBEROS_NAME),
        usage="initiate",
        mechs=[KRB5],
        store={"client_keytab": f"FILE:{keytab}", "ccache": f"FILE:{side.scratch / 'alice'}"},
    )
    name = gssapi.Name(SERVICE, KERBEROS_NAME)
    context = gssapi.SecurityContext(name=name, creds=credential, mech=KRB5, usage="initiate")
    assert acceptor.accept_header(_header(context.step())).principal == "alice@REALM.TEST"


def test_a_missing_keytab_is_our_outage(side: BridgeSide) -> None:
    broken = Acceptor(SERVICE, "/nonexistent/keytab", str(side.scratch / "rcache"))
    with pytest.raises(Outage, match=r"negotiate\.unavailable"):
        broken.accept_header(_header(Client(side).context().step()))


ASKED = node_binding("tickets", 4711, 20001, "node1")


@pytest.mark.parametrize("mech", [KRB5, SPNEGO], ids=["krb5", "spnego"])
def test_a_token_made_for_a_request_is_taken_for_it(side: BridgeSide, acceptor: Acceptor, mech: gssapi.OID) -> None:
    client = Client(side)
    context = client.context(mech, binding=ASKED)
    accepted = acceptor.accept_header(_header(context.step()), ASKED)
    assert accepted.principal == client.name
    context.step(accepted.reply)
    assert context.complete


OTHERS: dict[str, bytes | None] = {
    "another job": node_binding("tickets", 4712, 20001, "node1"),
    "another uid": node_binding("tickets", 4711, 20002, "node1"),
    "another node": node_binding("tickets", 4711, 20001, "node2"),
    "another purpose": node_binding("released", 4711, 20001, "node1"),
    "nothing": b"",
    "no request": None,
}


@pytest.mark.threat("T37")
@pytest.mark.parametrize("mech", [KRB5, SPNEGO], ids=["krb5", "spnego"])
@pytest.mark.parametrize("made_for", OTHERS.values(), ids=OTHERS.keys())
def test_a_token_can_not_be_spent_on_another_request(
    side: BridgeSide, acceptor: Acceptor, mech: gssapi.OID, made_for: bytes | None
) -> None:
    """Who takes web over sees a node's token go by; it opens what the node asked for and nothing else."""
    token = Client(side).context(mech, binding=made_for).step()
    with pytest.raises(PolicyRefused) as refusal:
        acceptor.accept_header(_header(token), ASKED)
    assert refusal.value.code == "negotiate.unbound"
