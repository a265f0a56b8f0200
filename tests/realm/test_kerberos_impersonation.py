"""S4U against a real KDC: what the bridge can do, what it can't, and what a ticket bundle is worth to a thief."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import gssapi
import krb5
import pytest
from bridge_side import (
    KERBEROS_NAME,
    KRB5,
    LOGIN,
    MDS1,
    PRINCIPAL,
    REALM_NAME,
    BridgeSide,
    bridge_side,
    initiate,
)
from dead_kdcs import BOUND_SECONDS
from gssapi.raw.misc import GSSError

from bridge.errors import BridgeError, Defect, Outage
from bridge.kerberos import bundle, ccache, impersonation, memory
from bridge.kerberos.deadline import Deadline
from bridge.kerberos.delegation import Delegation
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.holding import hold
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.initial import InitialTickets
from realm import Realm
from tests.fakes import FakeGuard

UNLISTED = "host/node1.realm.test"


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


def test_gives_tickets_of_the_person_for_each_target(side: BridgeSide) -> None:
    made = side.tickets("alice", (LOGIN, MDS1), 600)
    assert made.principal == "alice@REALM.TEST"
    assert [(one.client, one.server) for one in made.tickets] == [
        ("alice@REALM.TEST", f"{LOGIN}@REALM.TEST"),
        ("alice@REALM.TEST", f"{MDS1}@REALM.TEST"),
    ]
    log = side.realm.log("krb5kdc")
    assert "PROTOCOL-TRANSITION s4u-client=alice@REALM.TEST" in log
    assert "CONSTRAINED-DELEGATION s4u-client=alice@REALM.TEST" in log


@pytest.mark.parametrize(
    ("account", "targets", "code"),
    [
        ("alice", (LOGIN,), None),
        ("bob", (LOGIN, MDS1), None),
        ("carol", (LOGIN,), "kerberos.client_revoked"),
        ("nobody-here", (LOGIN,), "kerberos.unknown_principal"),
        ("root", (LOGIN,), "kerberos.account_denied"),
        ("lustre_root", (MDS1,), "kerberos.account_denied"),
        ("admin/admin", (LOGIN,), "kerberos.account_malformed"),
        (LOGIN, (LOGIN,), "kerberos.account_malformed"),
        ("alice", (UNLISTED,), "kerberos.not_delegable"),
        ("alice", (LOGIN, UNLISTED), "kerberos.not_delegable"),
        ("alice", ("host/nas.realm.test",), "kerberos.target_not_listed"),
        ("alice", ("krbtgt/REALM.TEST",), "kerberos.target_malformed"),
        ("alice", ("kadmin/admin",), "kerberos.target_malformed"),
        ("alice", ("host/nowhere.realm.test",), "kerberos.unknown_target"),
        ("alice", (PRINCIPAL.partition("@")[0],), "kerberos.target_not_listed"),
        ("alice", (), "kerberos.targets"),
        ("alice", (LOGIN, LOGIN), "kerberos.targets"),
    ],
    ids=str,
)
@pytest.mark.threat("T22")
def test_capability_matrix(side: BridgeSide, account: str, targets: tuple[str, ...], code: str | None) -> None:
    able = side.impersonation(extra=(UNLISTED, "host/nowhere.realm.test", PRINCIPAL.partition("@")[0]))
    assert _code(able, account, targets) == code


@pytest.mark.parametrize("account", ["root", "lustre_root", "admin/admin", LOGIN, "HTTP/bridge.realm.test"])
@pytest.mark.threat("T18")
def test_the_kdc_refuses_privileged_names_even_if_the_bridge_does_not(
    side: BridgeSide, monkeypatch: pytest.MonkeyPatch, account: str
) -> None:
    monkeypatch.setattr(impersonation, "account_principal", lambda name, realm: f"{name}@{realm}")
    assert _code(side.impersonation(), account, (LOGIN,)) == "kerberos.not_delegable"


@pytest.mark.threat("T17")
def test_a_refused_name_never_reaches_the_kdc(side: BridgeSide) -> None:
    able, before = side.impersonation(), side.realm.log("krb5kdc")
    for account in ("root", "a@REALM.TEST", "alice\0", "host/login.realm.test", "-oProxyCommand", "аlice"):
        assert _code(able, account, (LOGIN,)) in ("kerberos.account_denied", "kerberos.account_malformed")
    assert side.realm.log("krb5kdc") == before


@pytest.mark.parametrize("seconds", [120, 600, 3600])
def test_tickets_live_as_long_as_asked(side: BridgeSide, seconds: int) -> None:
    able = side.impersonation()
    for _ in range(3):
        left = (able.tickets("alice", 20001, (LOGIN,), seconds).end - datetime.now(UTC)).total_seconds()
        assert 0.8 * seconds - 2 <= left <= seconds + 1


def test_lives_do_not_mix(side: BridgeSide) -> None:
    able = side.impersonation()
    ends = [able.tickets("alice", 20001, (LOGIN,), seconds).end for seconds in (600, 3600, 600, 120)]
    assert ends[1] - ends[0] > timedelta(minutes=49)
    assert ends[2] <= ends[0] + timedelta(seconds=1)
    assert ends[3] < ends[0]


@pytest.mark.parametrize("seconds", [0, 59, -1, 10**9])
def test_a_life_out_of_bounds_is_refused(side: BridgeSide, seconds: int) -> None:
    with pytest.raises(BridgeError, match=r"kerberos\.lifetime"):
        side.impersonation().tickets("alice", 20001, (LOGIN,), seconds)


def test_a_tgt_is_renewed_after_a_fifth_of_its_life(side: BridgeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = InitialTickets(PRINCIPAL, side.keytab)
    first = tickets.get(600)
    assert tickets.get(600) is first
    assert first.end - first.start == 600
    assert b"krbtgt" in first.credential
    assert "krbtgt" not in repr(first)
    real = time.time
    monkeypatch.setattr("bridge.kerberos.initial.time.time", lambda: real() + 119)
    assert tickets.get(600) is first
    monkeypatch.setattr("bridge.kerberos.initial.time.time", lambda: real() + 122)
    assert tickets.get(600) is not first


def test_the_bridges_tgt_can_not_be_renewed(side: BridgeSide) -> None:
    credential = ccache.parse_entry(InitialTickets(PRINCIPAL, side.keytab).get(600).credential)
    assert credential.renew_till == 0
    assert not credential.flags & 0x00800000


@pytest.mark.threat("T19")
def test_what_a_thread_keeps_is_the_bridges_tgt_and_nothing_of_anybody(
    side: BridgeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, real = list[str](), memory.secrets.token_hex
    monkeypatch.setattr(memory.secrets, "token_hex", lambda size: names.append(real(size)) or names[-1])
    first, second = (InitialTickets(PRINCIPAL, side.keytab).get(life) for life in (600, 900))
    delegation = Delegation(PRINCIPAL)
    for person in ("alice", "bob", "alice"):
        delegation.delegate(first, person, f"{person}@{REALM_NAME}", [f"{LOGIN}@{REALM_NAME}"])
    assert [_entries(name) for name in names] == [[(PRINCIPAL, f"krbtgt/{REALM_NAME}@{REALM_NAME}")], None, None, None]
    delegation.delegate(second, "bob", f"bob@{REALM_NAME}", [f"{LOGIN}@{REALM_NAME}"])
    assert [_entries(name) is None for name in names] == [True, True, True, True, False, True]
    del delegation
    assert all(_entries(name) is None for name in names)


def test_a_credential_of_somebody_else_gives_no_tickets(side: BridgeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.Receiver, "owner", lambda cache: f"bob@{REALM_NAME}")
    with pytest.raises(Defect) as refused:
        side.tickets("alice")
    assert refused.value.code == "kerberos.wrong_person"


@pytest.mark.threat("T20")
def test_a_bundle_gives_a_thief_nothing_but_its_services(side: BridgeSide) -> None:
    """The attack of a stored S4U cache: it works on what MIT's library would store, and fails on a bundle."""
    stolen = side.scratch / "stolen"
    with memory.private_cache(PRINCIPAL, [InitialTickets(PRINCIPAL, side.keytab).get(600).credential]) as own:
        raw = gssapi.Credentials(mechs=[KRB5], usage="initiate", store={"ccache": own}).impersonate(
            name=gssapi.Name("alice@REALM.TEST", KERBEROS_NAME), mechs=[KRB5], usage="initiate"
        )
        raw.store(store={"ccache": f"FILE:{stolen}"}, usage="initiate", overwrite=True)
    assert _impersonate_from(stolen, "bob@REALM.TEST") == "bob@REALM.TEST"

    made = side.tickets("alice", (LOGIN, MDS1))
    stolen.write_bytes(made.ccache)
    assert _impersonate_from(stolen, "bob@REALM.TEST") is None
    assert _impersonate_from(stolen, "alice@REALM.TEST") is None
    with hold(made) as held:
        for other in (f"{UNLISTED}@REALM.TEST", "HTTP/bridge.realm.test@REALM.TEST", "krbtgt/REALM.TEST@REALM.TEST"):
            with pytest.raises(GSSError):
                initiate(held, other).step()


@pytest.mark.threat("T20")
def test_a_bundle_holds_no_foreign_client_no_tgt_and_no_setting(side: BridgeSide) -> None:
    made = side.tickets("alice", (LOGIN, MDS1))
    owner, entries = ccache.parse(made.ccache)
    assert str(owner) == "alice@REALM.TEST"
    assert {str(entry.client) for entry in entries} == {"alice@REALM.TEST"}
    assert {str(entry.server) for entry in entries} == {f"{LOGIN}@REALM.TEST", f"{MDS1}@REALM.TEST"}
    assert not any(entry.server.is_config or entry.second_ticket or entry.renew_till for entry in entries)
    bundle.verify_bundle(made.ccache, "alice@REALM.TEST", [one.server for one in made.tickets], made.end)
    path = side.realm.host("desk").path("/tmp/bundle")
    path.write_bytes(made.ccache)
    shown = side.realm.host("desk").run(["klist", "-f", "-e", "-c", "/tmp/bundle"]).stdout.decode()
    path.unlink()
    assert "Default principal: alice@REALM.TEST" in shown
    assert shown.count("@REALM.TEST") == 3
    assert "krbtgt" not in shown


@pytest.mark.parametrize(
    ("server", "host", "keytab"), [(LOGIN, "login", "/etc/krb5.keytab"), (MDS1, "mds1", "/etc/lustre.keytab")]
)
def test_a_bundle_works_with_the_kdc_stopped(side: BridgeSide, server: str, host: str, keytab: str) -> None:
    made = side.tickets("alice", (LOGIN, MDS1))
    side.realm.stop_service("krb5kdc")
    try:
        with hold(made) as held:
            client, acceptor = initiate(held, f"{server}@REALM.TEST"), side.acceptor(host, keytab)
            client.step(acceptor.step(client.step()))
        assert client.complete
        assert str(acceptor.initiator_name) == "alice@REALM.TEST"
        assert acceptor.delegated_creds is None
    finally:
        side.realm.restart_service("krb5kdc")


def test_nothing_is_left_in_memory_after_holding(side: BridgeSide) -> None:
    made = side.tickets()
    with hold(made) as held:
        pass
    with pytest.raises(GSSError):
        initiate(held, f"{LOGIN}@REALM.TEST").step()


def test_a_bundle_that_was_changed_is_not_held(side: BridgeSide) -> None:
    made = side.tickets()
    owner, entries = ccache.parse(made.ccache)
    for broken in (b"", made.ccache[:-1], ccache.write(owner, ())):
        with pytest.raises(BridgeError), hold(type(made)(made.principal, made.tickets, broken)) as held:
            initiate(held, f"{LOGIN}@REALM.TEST").step()
    assert len(entries) == 1


@pytest.mark.threat("T24")
def test_a_kdc_that_is_down_is_an_outage_at_once_and_needs_no_restart_of_ours(side: BridgeSide) -> None:
    able = side.impersonation()
    side.realm.stop_service("krb5kdc")
    try:
        began = time.monotonic()
        assert _code(able, "alice", (LOGIN,)) == "kerberos.kdc_unreachable"
        assert time.monotonic() - began < BOUND_SECONDS
    finally:
        side.realm.restart_service("krb5kdc")
    assert _code(able, "alice", (LOGIN,)) is None


@pytest.mark.threat("T24")
def test_a_kdc_that_does_not_answer_is_an_outage_within_five_seconds(side: BridgeSide) -> None:
    able = side.impersonation()
    _signal_kdc(side.realm, "STOP")
    try:
        began = time.monotonic()
        assert _code(able, "alice", (LOGIN,)) == "kerberos.kdc_unreachable"
        assert time.monotonic() - began < BOUND_SECONDS
    finally:
        _signal_kdc(side.realm, "CONT")
    began = time.monotonic()
    while _code(able, "alice", (LOGIN,)) is not None:
        assert time.monotonic() - began < 30


@pytest.mark.threat("T24")
def test_waiting_calls_are_bounded_in_number(side: BridgeSide) -> None:
    able, before = side.impersonation(deadline=Deadline(seconds=0.5, slots=2)), _callers()
    _signal_kdc(side.realm, "STOP")
    try:
        for _ in range(4):
            assert _code(able, "alice", (LOGIN,)) == "kerberos.kdc_unreachable"
        assert len(_callers() - before) == 2
    finally:
        _signal_kdc(side.realm, "CONT")
    began = time.monotonic()
    while _code(able, "alice", (LOGIN,)) is not None:
        assert time.monotonic() - began < 30


def test_a_bad_keytab_is_our_outage_and_not_the_persons_fault(side: BridgeSide) -> None:
    wrong = Impersonation(Exchange(PRINCIPAL, "/nonexistent/keytab"), REALM_NAME, [LOGIN], FakeGuard())
    with pytest.raises(Outage, match=r"kerberos\.bridge_credential"):
        wrong.tickets("alice", 20001, (LOGIN,), 600)


def test_a_locked_account_is_refused_at_once_and_served_again_when_unlocked(side: BridgeSide) -> None:
    able = side.impersonation()
    assert _code(able, "bob", (LOGIN,)) is None
    side.realm.kdc.modprinc("bob", "-allow_tix")
    try:
        assert _code(able, "bob", (LOGIN,)) == "kerberos.client_revoked"
    finally:
        side.realm.kdc.modprinc("bob", "+allow_tix")
    assert _code(able, "bob", (LOGIN,)) is None


def test_an_expired_account_is_refused(side: BridgeSide) -> None:
    side.realm.kdc.modprinc("bob", "-expire 2020-01-01")
    try:
        assert _code(side.impersonation(), "bob", (LOGIN,)) == "kerberos.client_expired"
    finally:
        side.realm.kdc.modprinc("bob", "-expire never")


@pytest.fixture
def crowd(realm: Realm) -> Iterator[list[str]]:
    """Twenty people that exist only at the KDC."""
    names = [f"crowd{number:02}" for number in range(20)]
    realm.kdc.kadmin(*(f"addprinc -randkey {name}" for name in names))
    yield names
    realm.kdc.kadmin(*(f"delprinc -force {name}" for name in names))


THREADS, ROUNDS, CONTEXTS = 32, 8, 8


@pytest.mark.threat("T19")
def test_no_thread_ever_acts_as_somebody_else(side: BridgeSide, crowd: list[str]) -> None:
    """Thirty-two threads for twenty people, with refusals in between; the acceptor says who came."""
    able, seen, problems = side.impersonation(extra=(UNLISTED,)), Counter[str](), list[str]()

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(ROUNDS):
            account = draw.choice(crowd)
            if draw.random() < 0.2 and _code(able, account, (UNLISTED,)) != "kerberos.not_delegable":
                problems.append("a refusal was lost")
            with hold(able.tickets(account, 20001, (LOGIN, MDS1), 600)) as held:
                for _ in range(CONTEXTS):
                    acceptor = side.acceptor("login", "/etc/krb5.keytab")
                    acceptor.step(initiate(held, f"{LOGIN}@REALM.TEST").step())
                    if str(acceptor.initiator_name) != f"{account}@REALM.TEST":
                        problems.append(f"{account} came as {acceptor.initiator_name}")
                    seen[account] += 1

    def guarded(seed: int) -> None:
        try:
            work(seed)
        except Exception as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert seen.total() == THREADS * ROUNDS * CONTEXTS
    assert len(seen) == len(crowd)


def _callers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "krb5-call"}


def _entries(name: str) -> list[tuple[str, str]] | None:
    """Clients and servers in a cache in memory; None where there is no such cache."""
    try:
        return [(str(entry.client), str(entry.server)) for entry in ccache.parse(memory.dump(f"MEMORY:{name}"))[1]]
    except krb5.Krb5Error:
        return None


def _code(able: Impersonation, account: str, targets: tuple[str, ...]) -> str | None:
    try:
        able.tickets(account, 20001, targets, 600)
    except BridgeError as error:
        return error.code
    return None


def _impersonate_from(path: Path, victim: str) -> str | None:
    """Try S4U2Self as ``victim`` with nothing but a cache file, as a thief would who knows the bridge's name."""
    try:
        own = gssapi.Name(PRINCIPAL, KERBEROS_NAME)
        entries = ccache.parse(path.read_bytes())[1]
        tgts = [ccache.write_entry(entry) for entry in entries if entry.server.components[0] == b"krbtgt"]
        with memory.private_cache(PRINCIPAL, tgts) as cache:
            thief = gssapi.Credentials(name=own, mechs=[KRB5], usage="initiate", store={"ccache": cache})
            return str(thief.impersonate(name=gssapi.Name(victim, KERBEROS_NAME), mechs=[KRB5], usage="initiate").name)
    except GSSError:
        return None


def _signal_kdc(realm: Realm, name: str) -> None:
    """Stop or continue the KDC's process: its port still takes connections, and nobody answers."""
    realm.host("kdc").run(["/usr/bin/pkill", f"-{name}", "-x", "krb5kdc"])
    for service, pid in realm.services():
        # nsenter, which the realm starts services with, stops together with its child and has to be told to go on.
        if name == "CONT" and service.name == "krb5kdc" and pid is not None:
            os.kill(pid, signal.SIGCONT)
