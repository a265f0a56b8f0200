"""The login node takes Kerberos and nothing else, and hands the bridge's connections to the login agent."""

import time
from collections.abc import Iterator

import pytest

from realm import Realm
from realm.deployed import PREFIX
from realm.host import Host
from realm.login import AGENT
from realm.workspace import CHECKOUT


@pytest.fixture
def desk(realm: Realm) -> Iterator[Host]:
    """Alice's workstation, with her own ticket in her default cache."""
    desk = realm.host("desk")
    desk.run(["kinit", "-k", "-t", realm.user_keytab("alice"), "alice"], user="alice")
    yield desk
    desk.run(["kdestroy", "-A"], user="alice")


def test_person_with_a_ticket_gets_a_shell_as_herself(desk: Host) -> None:
    done = desk.run(["ssh", "login.realm.test", "id -un; hostname"], user="alice")
    assert done.stdout.decode().split() == ["alice", "login.realm.test"]


def test_no_ticket_reaches_the_login_node_by_itself(desk: Host) -> None:
    done = desk.run(["ssh", "login.realm.test", "klist"], user="alice", check=False)
    assert b"No credentials cache found" in done.stderr


@pytest.mark.sends_wrong_tickets
def test_ticket_that_a_person_forwards_is_removed_with_her_session(realm: Realm, desk: Host) -> None:
    seen = desk.run(["ssh", "-K", "login.realm.test", "klist"], user="alice").stdout.decode()
    assert "krbtgt/REALM.TEST@REALM.TEST" in seen
    login = realm.host("login")
    end = time.monotonic() + 30
    while login.run(["find", "/tmp", "-name", "krb5cc*"]).stdout and time.monotonic() < end:
        time.sleep(0.02)
    assert login.run(["find", "/tmp", "-name", "krb5cc*"]).stdout == b""


@pytest.mark.parametrize("other", ["bob", "root", "mallory"])
def test_ticket_does_not_open_another_account(desk: Host, other: str) -> None:
    done = desk.run(["ssh", "-l", other, "login.realm.test", "id"], user="alice", check=False)
    assert done.returncode == 255
    assert b"Permission denied (gssapi-with-mic)" in done.stderr


@pytest.mark.parametrize("method", ["password", "keyboard-interactive", "publickey", "hostbased", "none"])
def test_every_other_way_in_is_refused(desk: Host, method: str) -> None:
    desk.run(
        ["sh", "-c", "test -e ~/.ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519"], user="alice"
    )
    options = ["-o", "GSSAPIAuthentication=no", "-o", f"PreferredAuthentications={method}", "-o", "BatchMode=yes"]
    done = desk.run(["ssh", *options, "login.realm.test", "id"], user="alice", check=False)
    assert done.returncode == 255
    assert b"Permission denied (gssapi-with-mic)" in done.stderr


def test_key_in_the_home_directory_proves_nothing(realm: Realm, desk: Host) -> None:
    key = "/home/alice/.ssh/planted"
    desk.run(["sh", "-c", f"mkdir -p ~/.ssh; test -e {key} || ssh-keygen -q -t ed25519 -N '' -f {key}"], user="alice")
    public = desk.read(f"{key}.pub").decode()
    login = realm.host("login")
    login.run(
        ["sh", "-c", "umask 77; mkdir -p ~/.ssh; cat > ~/.ssh/authorized_keys"], user="alice", input=public.encode()
    )
    try:
        options = ["-i", key, "-o", "GSSAPIAuthentication=no", "-o", "PreferredAuthentications=publickey"]
        done = desk.run(["ssh", *options, "login.realm.test", "id"], user="alice", check=False)
        assert done.returncode == 255
    finally:
        login.run(["rm", "-rf", "/home/alice/.ssh"])


_PROHIBITED = "administratively prohibited"


@pytest.mark.parametrize(
    ("asked", "remote", "answer"),
    [
        (["-W", "ctl:6817"], [], _PROHIBITED),
        (["-R", "9999:localhost:22", "-o", "ExitOnForwardFailure=yes"], ["id"], "remote port forwarding failed"),
        (["-A"], ['test -z "$SSH_AUTH_SOCK" && echo no agent'], "no agent"),
        (["-Y"], ['test -z "$DISPLAY" && echo no display'], "no display"),
    ],
    ids=["tcp", "reverse", "agent", "x11"],
)
def test_nothing_is_forwarded(desk: Host, asked: list[str], remote: list[str], answer: str) -> None:
    argv = ["ssh-agent", "ssh", *asked, "login.realm.test", *remote]
    done = desk.run(argv, user="alice", check=False, env={"DISPLAY": ":7"})
    assert answer in done.stdout.decode() + done.stderr.decode()


def test_bridge_address_gets_the_login_agent_whatever_it_asks(realm: Realm) -> None:
    bridge, login = realm.host("bridge"), realm.host("login")
    kept = login.read(AGENT) if login.path(AGENT).exists() else None
    login.write(AGENT, "#!/bin/sh\necho agent of $(id -un)\n", mode=0o755)
    cache = {"KRB5CCNAME": "FILE:/tmp/alice-at-bridge"}
    realm.kdc.ktadd(["alice"], bridge, "/tmp/alice.keytab", owner="alice")
    try:
        bridge.run(["kinit", "-k", "-t", "/tmp/alice.keytab", "alice"], user="alice", env=cache)
        done = bridge.run(["ssh", "login.realm.test", "cat /etc/shadow; id"], user="alice", env=cache)
        assert done.stdout == b"agent of alice\n"
    finally:
        bridge.path("/tmp/alice.keytab").unlink()
        if kept is None:
            login.path(AGENT).unlink()
        else:
            login.write(AGENT, kept, mode=0o755)


def test_known_hosts_pins_the_login_node(realm: Realm, desk: Host) -> None:
    line = realm.known_hosts()
    assert line.startswith("login.realm.test,login,10.113.0.14 ssh-ed25519 ")
    desk.write("/tmp/other_hosts", line.replace("AAAAI", "AAAAJ"))
    options = ["-o", "GlobalKnownHostsFile=/tmp/other_hosts", "-o", "UserKnownHostsFile=/dev/null"]
    done = desk.run(["ssh", *options, "login.realm.test", "id"], user="alice", check=False)
    assert done.returncode == 255
    assert b"Host key verification failed" in done.stderr


@pytest.mark.parametrize("name", ["login", "node1", "node2", "runner"])
def test_driver_is_installed_as_roots(realm: Realm, name: str) -> None:
    host = realm.host(name)
    assert host.read(f"{PREFIX}/runner/wire.py") == (CHECKOUT / "runner" / "wire.py").read_bytes()
    writable = host.run(["find", PREFIX, "!", "-user", "root", "-o", "-perm", "/022", "!", "-type", "l"]).stdout
    assert writable == b""
