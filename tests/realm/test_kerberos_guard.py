"""The wall behind policy: with a mistake above it, or with any one wall taken away, nobody gets root's tickets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_side import LOGIN, PRINCIPAL, REALM_NAME, BridgeSide, bridge_side

from bridge.errors import BridgeError, Defect, Outage, PolicyRefused
from bridge.kerberos import impersonation
from bridge.kerberos.guard import AccountGuard
from bridge.model import PosixAccount
from bridge.policy.directory import NssDirectory
from realm import Realm
from realm.host import kill_session
from realm.principals import BRIDGE_KEYTAB
from tests.fakes import FakeDirectory, FakeGuard
from tests.unit.kerberos.test_ticket_names import CORPUS

GROUPS = frozenset({"sudo", "docker"})


def account(name: str, uid: int = 20001, gid: int = 20001, groups: tuple[str, ...] = ()) -> PosixAccount:
    """An account as the directory would show it."""
    return PosixAccount(name, uid, gid, (name, *groups), f"/home/{name}", "/bin/bash")


def guard(*accounts: PosixAccount) -> AccountGuard:
    """A guard with the bounds of these tests."""
    return AccountGuard(FakeDirectory(*accounts), 1000, frozenset({"bob"}), GROUPS)


def asked(side: BridgeSide) -> list[str]:
    """What the KDC was asked so far; it closes connections when it likes, and says so."""
    return [line for line in side.realm.log("krb5kdc").splitlines() if "_REQ " in line]


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


MISTAKES_ABOVE = [
    pytest.param(account("alice", uid=0), id="uid of root under another name"),
    pytest.param(account("alice", uid=999), id="below the floor"),
    pytest.param(account("alice", gid=0), id="root's group is its own"),
    pytest.param(account("alice", groups=("sudo",)), id="in a denied group"),
    pytest.param(account("alice", groups=("chem", "docker")), id="in a denied group, last"),
    pytest.param(account("bob", uid=20002), id="a denied user"),
]


@pytest.mark.threat("T18")
@pytest.mark.parametrize("found", MISTAKES_ABOVE)
def test_no_mistake_of_policy_gets_a_privileged_account_tickets(side: BridgeSide, found: PosixAccount) -> None:
    able, before = side.impersonation(guard=guard(found)), asked(side)
    with pytest.raises(BridgeError, match=r"kerberos\.account_denied"):
        able.tickets(found.name, found.uid, (LOGIN,), 600)
    assert asked(side) == before


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    ("name", "code"),
    [("root", "kerberos.account_denied"), ("daemon", "kerberos.account_denied"), ("sshd", "kerberos.account_denied")],
)
def test_without_the_wall_of_names_the_directory_still_refuses(
    side: BridgeSide, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    """The name service of this very machine, which knows root and the system's own users."""
    monkeypatch.setattr(impersonation, "account_principal", lambda name, realm: f"{name}@{realm}")
    bounds = AccountGuard(NssDirectory(), 1000, frozenset(), frozenset())
    able, before = side.impersonation(guard=bounds), asked(side)
    with pytest.raises(BridgeError) as caught:
        able.tickets(name, 20001, (LOGIN,), 600)
    assert caught.value.code in (code, "account.unknown")
    assert asked(side) == before


@pytest.mark.threat("T18")
def test_without_the_wall_of_the_directory_the_names_still_refuse(side: BridgeSide) -> None:
    able, before = side.impersonation(guard=FakeGuard()), asked(side)
    for name in ("root", "daemon", "lustre_root", "slurm", "ci-bridge", "host"):
        with pytest.raises(BridgeError, match=r"kerberos\.account_denied"):
            able.tickets(name, 20001, (LOGIN,), 600)
    assert asked(side) == before


@pytest.mark.threat("T18")
def test_without_both_the_kdc_still_refuses(side: BridgeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impersonation, "account_principal", lambda name, realm: f"{name}@{realm}")
    able = side.impersonation(guard=FakeGuard())
    for name in ("root", "admin/admin", "host/login.realm.test"):
        with pytest.raises(BridgeError, match=r"kerberos\.not_delegable"):
            able.tickets(name, 20001, (LOGIN,), 600)


@pytest.mark.threat("T18")
def test_a_directory_that_does_not_answer_lets_nobody_through(side: BridgeSide) -> None:
    directory = FakeDirectory(account("alice"))
    directory.error = Outage("directory.unreachable", "The directory does not answer.", "Retry.")
    able = side.impersonation(guard=AccountGuard(directory, 1000, frozenset(), frozenset()))
    before = asked(side)
    with pytest.raises(Outage, match=r"directory\.unreachable"):
        able.tickets("alice", 20001, (LOGIN,), 600)
    assert asked(side) == before
    directory.error = None
    assert able.tickets("alice", 20001, (LOGIN,), 600)


@pytest.mark.threat("T18")
def test_a_directory_that_fails_in_an_unknown_way_lets_nobody_through(side: BridgeSide) -> None:
    class Broken:
        def lookup(self, name: str) -> PosixAccount:
            raise RuntimeError(name)

    able = side.impersonation(guard=AccountGuard(Broken(), 1000, frozenset(), frozenset()))
    before = asked(side)
    with pytest.raises(RuntimeError):
        able.tickets("alice", 20001, (LOGIN,), 600)
    assert asked(side) == before


@pytest.mark.threat("T18")
def test_an_answer_for_another_name_is_not_taken(side: BridgeSide) -> None:
    directory = FakeDirectory()
    directory.accounts["alice"] = account("alicia")
    with pytest.raises(BridgeError, match=r"kerberos\.account_denied"):
        side.impersonation(guard=AccountGuard(directory, 1000, frozenset(), frozenset())).tickets(
            "alice", 20001, (LOGIN,), 600
        )


@pytest.mark.threat("T11")
def test_a_name_that_was_given_to_somebody_else_after_the_decision_gets_no_tickets(side: BridgeSide) -> None:
    able, before = side.impersonation(guard=guard(account("alice", uid=29001))), asked(side)
    with pytest.raises(PolicyRefused, match=r"kerberos\.uid_changed") as caught:
        able.tickets("alice", 20001, (LOGIN,), 600)
    assert (caught.value.context["decided_uid"], caught.value.context["uid"]) == (20001, 29001)
    assert asked(side) == before
    assert able.tickets("alice", 29001, (LOGIN,), 600)


@pytest.mark.parametrize("floor", [0, -1])
def test_a_floor_that_includes_root_is_a_defect_at_the_start(floor: int) -> None:
    with pytest.raises(Defect, match=r"kerberos\.guard_open"):
        AccountGuard(FakeDirectory(), floor, frozenset(), frozenset())


@pytest.mark.threat("T17")
def test_no_name_of_the_corpus_reaches_the_directory_or_the_kdc(side: BridgeSide) -> None:
    watch = FakeGuard()
    able, before = side.impersonation(guard=watch), asked(side)
    for name in CORPUS:
        with pytest.raises(BridgeError):
            able.tickets(name, 20001, (LOGIN,), 600)
    assert watch.asked == []
    assert asked(side) == before
    assert len(CORPUS) > 4000


_ASK = f"""
import sys
from bridge.errors import BridgeError
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.guard import AccountGuard
from bridge.kerberos.impersonation import Impersonation
from bridge.policy.directory import NssDirectory
guard = AccountGuard(NssDirectory(), 1000, frozenset(), frozenset({{"sudo"}}))
able = Impersonation(Exchange("{PRINCIPAL}", "{BRIDGE_KEYTAB}"), "{REALM_NAME}", ["{LOGIN}"], guard)
for line in sys.stdin:
    try:
        name, uid = line.split()
        print(able.tickets(name, int(uid), ["{LOGIN}"], 600).principal, flush=True)
    except BridgeError as error:
        print(error.code, flush=True)
"""


@pytest.mark.threat("T18")
def test_a_running_broker_sees_a_changed_directory_at_the_next_request(side: BridgeSide) -> None:
    """The real name service of the bridge's host, in one process that is not restarted."""
    host = side.realm.host("bridge")
    groups, passwd = host.read("/etc/group").decode(), host.read("/etc/passwd").decode()
    argv = [sys.executable, "-P", "-c", _ASK]
    process = host.popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout

    def ask(name: str, uid: int = 20001) -> str:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{name} {uid}\n".encode())
        process.stdin.flush()
        return process.stdout.readline().decode().strip()

    try:
        assert ask("alice") == "alice@REALM.TEST"
        host.write("/etc/group", groups.replace("\nsudo:x:27:", "\nsudo:x:27:alice"))
        assert ask("alice") == "kerberos.account_denied"
        assert ask("mallory", 20003) == "mallory@REALM.TEST"
        assert ask("gone") == "account.unknown"
        host.write("/etc/group", groups)
        assert ask("alice") == "alice@REALM.TEST"
        host.write("/etc/passwd", passwd.replace("\nalice:x:20001:", "\nalice:x:29001:"))
        assert ask("alice") == "kerberos.uid_changed"
        assert ask("alice", 29001) == "alice@REALM.TEST"
        host.write("/etc/passwd", passwd)
        assert ask("alice") == "alice@REALM.TEST"
    finally:
        host.write("/etc/group", groups)
        host.write("/etc/passwd", passwd)
        process.stdin.close()
        kill_session(process)
        process.wait(30)
        process.stdout.close()
