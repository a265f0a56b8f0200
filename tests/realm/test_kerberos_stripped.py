"""What is delivered is a file: what it opens without a KDC, and what a thief with MIT's own tools gets out of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gssapi
import pytest
from bridge_kinds import Kind, made
from bridge_side import LOGIN, MDS1, PRINCIPAL, REALM_NAME, BridgeSide, bridge_side, initiate

from bridge.kerberos import ccache
from bridge.kerberos.holding import hold
from realm import Realm
from realm.host import Host
from realm.principals import DELEGATION_TARGETS
from tests.tap.attack import attacks

CACHE = "/tmp/captured"
HOLDER = "mallory"
RENEWABLE = 0x00800000

MANY = tuple(f"lustre_mds/mds{number:02}.realm.test" for number in range(24))
WIDE = Kind("stripped", transition=True, targets=MANY)


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


@pytest.fixture
def desk(side: BridgeSide) -> Iterator[Host]:
    """Where the thief sits."""
    desk = side.realm.host("desk")
    yield desk
    for name in (CACHE, f"{CACHE}.out"):
        desk.path(name).unlink(missing_ok=True)


def captured(side: BridgeSide, desk: Host, account: str = "alice") -> bytes:
    """Put a delivered bundle into the thief's hands."""
    data = side.tickets(account, DELEGATION_TARGETS).ccache
    desk.write(CACHE, data, mode=0o600, owner=HOLDER)
    return data


def stored(side: BridgeSide, desk: Host) -> None:
    """Put there instead what MIT's library stores after S4U, which a bridge without ``strip`` would deliver."""
    entries = ccache.parse(side.unstripped())[1]
    tgt = next(entry for entry in entries if entry.server.components[0] == b"krbtgt")
    desk.write(CACHE, ccache.write(tgt.client, (tgt,)), mode=0o600, owner=HOLDER)


@pytest.mark.threat("T20")
@pytest.mark.parametrize("attack", [pytest.param(argv, id=name) for name, argv in attacks(CACHE).items()])
def test_a_captured_file_gives_a_thief_nothing_more(side: BridgeSide, desk: Host, attack: list[str]) -> None:
    data, before = captured(side, desk), side.realm.log("krb5kdc")
    done = desk.run(attack, user=HOLDER, check=False)
    assert done.returncode != 0, done.stdout
    assert ": ISSUE: " not in side.realm.log("krb5kdc")[len(before) :]
    after = desk.read(CACHE)
    assert {str(entry.server) for entry in ccache.parse(after)[1] if not entry.server.is_config} == {
        str(entry.server) for entry in ccache.parse(data)[1]
    }


@pytest.mark.threat("T20")
def test_the_same_attack_works_on_what_the_library_would_have_stored(side: BridgeSide, desk: Host) -> None:
    """So that the table above is known to attack at all."""
    stored(side, desk)
    done = desk.run(["kvno", "-c", CACHE, "-U", "bob", PRINCIPAL], user=HOLDER, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.threat("T20")
def test_every_entry_of_a_captured_file_is_the_accounts_own_and_can_not_be_renewed(
    side: BridgeSide, desk: Host
) -> None:
    owner, entries = ccache.parse(captured(side, desk))
    assert str(owner) == "alice@REALM.TEST"
    assert [str(entry.server) for entry in entries] == [f"{target}@{REALM_NAME}" for target in DELEGATION_TARGETS]
    for entry in entries:
        assert entry.client == owner
        assert not entry.flags & RENEWABLE
        assert entry.renew_till == 0
        assert (entry.second_ticket, entry.addresses, entry.authdata) == (b"", (), ())
        assert PRINCIPAL.partition("@")[0].encode() not in entry.ticket
    assert len({entry.end_time for entry in entries}) == 1


@pytest.mark.parametrize(
    ("account", "name", "opens"),
    [("alice", "alice", True), ("alice", "bob", False), ("alice", "root", False), ("bob", "alice", False)],
)
@pytest.mark.threat("T20")
def test_sshd_takes_a_delivered_ticket_for_its_own_account_only_and_needs_no_kdc(
    side: BridgeSide, desk: Host, account: str, name: str, *, opens: bool
) -> None:
    captured(side, desk, account)
    argv = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        "GSSAPIDelegateCredentials=no",
        "-l",
        name,
        "login.realm.test",
        "id -un",
    ]
    side.realm.stop_service("krb5kdc")
    try:
        done = desk.run(argv, user=HOLDER, check=False, env={"KRB5CCNAME": f"FILE:{CACHE}"})
    finally:
        side.realm.restart_service("krb5kdc")
    assert (done.returncode == 0) == opens, done.stderr
    assert done.stdout.decode().strip() == (name if opens else "")


@pytest.mark.threat("T20")
def test_a_service_that_is_not_listed_is_out_of_reach_with_and_without_a_kdc(side: BridgeSide) -> None:
    made_bundle = side.tickets("alice", (LOGIN,))
    with hold(made_bundle) as held:
        for server in (MDS1, "host/node1.realm.test", "HTTP/bridge.realm.test"):
            with pytest.raises(gssapi.exceptions.GSSError):
                initiate(held, f"{server}@{REALM_NAME}").step()


def test_twenty_four_services_come_in_one_bundle_and_each_takes_its_ticket(side: BridgeSide) -> None:
    realm = side.realm
    with made(realm, [WIDE], dict.fromkeys(MANY, ("-requires_preauth",))):
        bundle = WIDE.impersonation(realm, MANY).tickets("alice", 20001, MANY, 600)
        realm.kdc.ktadd(MANY, realm.host("mds1"), "/var/lib/realm/many.keytab")
        realm.stop_service("krb5kdc")
        try:
            with hold(bundle) as held:
                for server in MANY:
                    acceptor = side.acceptor("mds1", "/var/lib/realm/many.keytab")
                    acceptor.step(initiate(held, f"{server}@{REALM_NAME}").step())
                    assert str(acceptor.initiator_name) == "alice@REALM.TEST"
        finally:
            realm.restart_service("krb5kdc")
            realm.host("mds1").path("/var/lib/realm/many.keytab").unlink(missing_ok=True)
    assert [ticket.server for ticket in bundle.tickets] == [f"{server}@{REALM_NAME}" for server in MANY]
    assert {ticket.client for ticket in bundle.tickets} == {"alice@REALM.TEST"}
    assert len(bundle.ccache) < 64 * 1024
