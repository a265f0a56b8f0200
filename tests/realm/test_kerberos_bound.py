"""A person's ticket that was made for one request, over the realm's own KDC: it counts for that one, as bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gssapi
import pytest
from bridge_side import KERBEROS_NAME, KRB5, REALM_NAME, bridge_side
from gssapi.raw import ChannelBindings
from test_kerberos_initiating import HOST, Desk, reply

from bridge.errors import PolicyRefused
from bridge.kerberos.initiating import Initiator
from bridge.kerberos.negotiate import Acceptor
from realm import Realm
from realm.principals import BRIDGE_HTTP, HTTP_KEYTAB
from runner.binding import request_binding

THIS = request_binding("POST", "/v1/admin/proposals/A/approve", 2, {"content_hash": "1", "reason": "r"})
OTHER = request_binding("POST", "/v1/admin/proposals/A/approve", 2, {"content_hash": "2", "reason": "r"})


@pytest.fixture
def acceptor(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acceptor]:
    """The bridge, and alice with a ticket."""
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        Desk(side, monkeypatch).kinit("alice")
        keytab = realm.host("bridge").path(HTTP_KEYTAB)
        yield Acceptor(f"{BRIDGE_HTTP}@{REALM_NAME}", str(keytab), str(side.scratch / "http.rcache"))
        monkeypatch.delenv("KRB5CCNAME", raising=False)


def test_it_counts_for_what_it_was_made_for(acceptor: Acceptor) -> None:
    exchange = Initiator(HOST).begin(THIS)
    accepted = acceptor.accept_header(exchange.header, THIS, demanded=False)
    assert (accepted.principal, accepted.bound) == (f"alice@{REALM_NAME}", True)
    exchange.check(reply(accepted.reply))


@pytest.mark.threat("T21")
@pytest.mark.parametrize("demanded", [True, False])
def test_no_ticket_is_spent_on_what_it_was_not_made_for(acceptor: Acceptor, demanded: bool) -> None:
    with pytest.raises(PolicyRefused, match=r"negotiate\.unbound"):
        acceptor.accept_header(Initiator(HOST).begin(OTHER).header, THIS, demanded=demanded)


@pytest.mark.threat("T21")
def test_one_that_was_made_for_nothing_is_never_taken_for_bound(acceptor: Acceptor) -> None:
    assert acceptor.accept_header(Initiator(HOST).begin().header, THIS, demanded=False).bound is False
    with pytest.raises(PolicyRefused, match=r"negotiate\.unbound"):
        acceptor.accept_header(Initiator(HOST).begin().header, THIS)
    assert acceptor.accept_header(Initiator(HOST).begin(THIS).header).bound is False


@pytest.mark.threat("T21")
def test_a_browsers_binding_to_its_connection_is_no_binding_to_a_request(acceptor: Acceptor) -> None:
    """As browsers and curl make it of the server's certificate (RFC 5929): good where nobody asks for ours."""

    def browser() -> str:
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"{BRIDGE_HTTP}@{REALM_NAME}", KERBEROS_NAME),
            mech=KRB5,
            flags=int(gssapi.RequirementFlag.mutual_authentication),
            channel_bindings=ChannelBindings(application_data=b"tls-server-end-point:" + b"c" * 32),
            usage="initiate",
        )
        return reply(context.step() or b"")

    assert acceptor.accept_header(browser()).principal == f"alice@{REALM_NAME}"
    with pytest.raises(PolicyRefused, match=r"negotiate\.unbound"):
        acceptor.accept_header(browser(), THIS, demanded=False)
