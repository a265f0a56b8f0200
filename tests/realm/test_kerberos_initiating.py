"""A person's own ticket shows who calls, to the right server only; and a server that proves nothing is not believed."""

from __future__ import annotations

import base64
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_side import REALM_NAME, BridgeSide, bridge_side

from bridge.errors import BridgeError, Defect, Outage, RequestRefused
from bridge.kerberos.deadline import Deadline
from bridge.kerberos.initiating import Initiator
from bridge.kerberos.negotiate import Acceptor
from realm import Realm
from realm.principals import BRIDGE_HTTP, HTTP_KEYTAB

HOST = BRIDGE_HTTP.partition("/")[2]


class Desk:
    """A person at a machine: their ticket cache is libkrb5's default one, as after kinit."""

    def __init__(self, side: BridgeSide, monkeypatch: pytest.MonkeyPatch) -> None:
        self.side = side
        self.cache = side.scratch / "krb5cc"
        # What a person's session has; the bridge's own processes never do.
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{self.cache}")
        monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(side.scratch / "absent"))

    def kinit(self, person: str, *options: str) -> None:
        """Get a ticket for the person."""
        desk, draft = self.side.realm.host("desk"), f"/tmp/initiating-{person}"
        desk.run(
            ["kinit", *options, "-c", f"FILE:{draft}", "-k", "-t", self.side.realm.user_keytab(person), person],
            user=person,
        )
        self.cache.write_bytes(desk.read(draft))
        desk.path(draft).unlink()


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side
        monkeypatch.delenv("KRB5CCNAME", raising=False)


@pytest.fixture
def desk(side: BridgeSide, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(side, monkeypatch)


@pytest.fixture
def acceptor(side: BridgeSide) -> Acceptor:
    keytab = side.realm.host("bridge").path(HTTP_KEYTAB)
    return Acceptor(f"{BRIDGE_HTTP}@{REALM_NAME}", str(keytab), str(side.scratch / "http.rcache"))


def reply(token: bytes) -> str:
    return "Negotiate " + base64.b64encode(token).decode()


@pytest.mark.parametrize("realm_given", [None, REALM_NAME])
@pytest.mark.parametrize("person", ["alice", "bob"])
def test_the_bridge_learns_who_calls_and_proves_itself(
    desk: Desk, acceptor: Acceptor, person: str, realm_given: str | None
) -> None:
    desk.kinit(person)
    exchange = Initiator(HOST, realm_given).begin()
    accepted = acceptor.accept_header(exchange.header)
    exchange.check(reply(accepted.reply))
    assert accepted.principal == f"{person}@{REALM_NAME}"
    assert exchange.header not in repr(exchange)


@pytest.mark.threat("T20")
def test_a_forwardable_ticket_is_not_delegated(desk: Desk, acceptor: Acceptor) -> None:
    desk.kinit("alice", "-f")
    exchange = Initiator(HOST).begin()
    assert not exchange._context.actual_flags & 1  # GSS_C_DELEG_FLAG, RFC 2744
    # An AP-REQ that carries a forwarded TGT is hundreds of bytes longer than one without.
    desk.kinit("alice")
    plain = Initiator(HOST).begin()
    assert abs(len(exchange.header) - len(plain.header)) < 64
    assert acceptor.accept_header(exchange.header).principal == f"alice@{REALM_NAME}"


def test_each_request_has_a_token_of_its_own(desk: Desk, acceptor: Acceptor) -> None:
    desk.kinit("alice")
    initiator = Initiator(HOST)
    for exchange in [initiator.begin() for _ in range(3)]:
        exchange.check(reply(acceptor.accept_header(exchange.header).reply))


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        "",
        "Negotiate",
        "Negotiate ",
        "Negotiate !!!!",
        "Negotiate AAAA",
        "Negotiate oQcwBaADCgEA",
        "Basic realm=x",
        "Negotiate " + "A" * 100_000,
    ],
    ids=range(9),
)
def test_a_server_that_proves_nothing_is_not_believed(desk: Desk, answer: str | None) -> None:
    """``oQcwBaADCgEA`` is SPNEGO for "accepted" (RFC 4178 section 4.2.2), without the Kerberos reply that proves it."""
    desk.kinit("alice")
    with pytest.raises(Defect, match=r"kerberos\.server_unproven"):
        Initiator(HOST).begin().check(answer)


@pytest.mark.threat("T40")
def test_the_proof_of_another_exchange_is_not_believed(desk: Desk, acceptor: Acceptor) -> None:
    desk.kinit("alice")
    first, second = Initiator(HOST).begin(), Initiator(HOST).begin()
    acceptor.accept_header(second.header)
    earlier = acceptor.accept_header(first.header).reply
    with pytest.raises(Defect, match=r"kerberos\.server_unproven"):
        second.check(reply(earlier))


@pytest.mark.threat("T40")
def test_the_key_of_another_service_proves_nothing(desk: Desk) -> None:
    desk.kinit("alice")
    exchange = Initiator(HOST).begin()
    node = desk.side.realm.host("node1").path("/etc/krb5.keytab")
    impostor = Acceptor(f"host/node1.realm.test@{REALM_NAME}", str(node), str(desk.side.scratch / "rcache"))
    with pytest.raises(BridgeError, match=r"negotiate\.refused"):
        impostor.accept_header(exchange.header)


def test_without_a_ticket_one_is_told_to_get_one(desk: Desk) -> None:
    with pytest.raises(RequestRefused, match=r"kerberos\.no_ticket") as caught:
        Initiator(HOST).begin()
    assert "kinit" in caught.value.remedy


def test_a_cache_that_is_none_is_no_ticket(desk: Desk) -> None:
    desk.cache.write_bytes(b"")
    with pytest.raises(RequestRefused, match=r"kerberos\.no_ticket"):
        Initiator(HOST).begin()


def test_a_ticket_that_is_over_is_no_ticket(desk: Desk) -> None:
    desk.kinit("alice", "-l", "1s")
    deadline = time.monotonic() + 20
    while subprocess.run(["klist", "-s", "-c", f"FILE:{desk.cache}"], check=False).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(RequestRefused, match=r"kerberos\.no_ticket"):
        Initiator(HOST).begin()


def test_a_server_that_the_realm_does_not_know_is_named(desk: Desk) -> None:
    desk.kinit("alice")
    with pytest.raises(RequestRefused, match=r"kerberos\.server_unknown") as caught:
        Initiator("nosuch.realm.test").begin()
    assert "HTTP/nosuch.realm.test" in caught.value.title


@pytest.mark.threat("T17")
@pytest.mark.parametrize("host", ["", "a b", "bridge.realm.test@OTHER", "x/y", "a" * 300, "[::1]", "br\\idge"])
def test_a_host_that_is_no_name_is_never_put_into_a_principal(desk: Desk, host: str) -> None:
    desk.kinit("alice")
    with pytest.raises(RequestRefused, match=r"kerberos\.target_malformed"):
        Initiator(host).begin()


@pytest.mark.threat("T24")
def test_a_kdc_that_does_not_answer_costs_bounded_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.kinit("alice")
    with socket.create_server((desk.side.realm.host("bridge").address, 0)) as silent:
        conf = desk.side.scratch / "krb5.conf"
        lines = desk.side.realm.krb5_conf.read_text().replace(
            f"kdc = {desk.side.realm.host('kdc').address}:88",
            f"kdc = {desk.side.realm.host('bridge').address}:{silent.getsockname()[1]}",
        )
        conf.write_text(lines)
        monkeypatch.setenv("KRB5_CONFIG", str(conf))
        with pytest.raises(Outage, match=r"kerberos\.kdc_unreachable"):
            Initiator(HOST, deadline=Deadline(seconds=0.5)).begin()
