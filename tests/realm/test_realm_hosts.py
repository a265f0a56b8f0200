"""Hosts of a realm are machines of their own, and the real machine notices nothing of them."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from realm import Realm, RealmError
from realm.hostroot import BOOT_ID
from realm.topology import HOSTS
from realm.workspace import CHECKOUT


def _digest_of_machine() -> dict[str, tuple[int, int, int]]:
    watched = ("/etc", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts", "/etc/krb5.conf", "/etc/nsswitch.conf")
    found = {path: Path(path).stat() for path in watched if Path(path).exists()}
    return {path: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}


def _text(realm: Realm, host: str, *argv: str, user: str | None = None) -> str:
    return realm.host(host).run(list(argv), user=user, timeout=20).stdout.decode().strip()


def test_each_host_has_its_own_name_and_address(realm: Realm) -> None:
    before = socket.gethostname()
    for spec in HOSTS:
        assert _text(realm, spec.name, "hostname") == spec.fqdn
        assert f"inet {spec.address}/24" in _text(realm, spec.name, "ip", "-4", "address", "show", "eth0")
    assert socket.gethostname() == before


def test_hosts_reach_each_other_by_name_and_nothing_else(realm: Realm) -> None:
    login = realm.host("login")
    assert _text(realm, "desk", "getent", "hosts", "login.realm.test").split()[0] == login.address
    assert _text(realm, "desk", "ip", "route") == "10.113.0.0/24 dev eth0 proto kernel scope link src 10.113.0.40"
    links = _text(realm, "desk", "ip", "-o", "link").splitlines()
    assert [line.split(": ")[1].partition("@")[0] for line in links] == ["lo", "eth0"]


def test_machine_keeps_its_own_etc_when_a_realm_comes_and_goes() -> None:
    before = _digest_of_machine()
    with Realm(parts=()) as realm:
        realm.host("login").run(["useradd", "stranger"])
        realm.host("login").write("/usr/lib/stranger", "x")
        assert "stranger" in _text(realm, "login", "getent", "passwd", "stranger")
    assert _digest_of_machine() == before
    assert not Path("/usr/lib/stranger").exists()


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/run", "/dev/shm", "/var/lib", "/var/log", "/var/spool"])
def test_directory_is_private_to_its_host(realm: Realm, folder: str) -> None:
    name = f"{folder}/seen-by-{os.getpid()}"
    realm.host("login").write(name, "login's")
    try:
        assert not Path(name).exists()
        assert realm.host("node1").run(["test", "-e", name], check=False).returncode == 1
        assert realm.host("login").run(["cat", name]).stdout == b"login's"
    finally:
        realm.host("login").path(name).unlink()


def test_home_and_builds_are_shared_by_login_and_nodes_only(realm: Realm) -> None:
    realm.host("login").run(["sh", "-c", "echo hers > /home/alice/shared-note"], user="alice")
    realm.host("node1").run(["sh", "-c", "mkdir /builds/alice-note"], user="alice")
    try:
        assert _text(realm, "node2", "cat", "/home/alice/shared-note", user="alice") == "hers"
        assert _text(realm, "login", "stat", "-c", "%U", "/builds/alice-note") == "alice"
        assert not realm.host("desk").path("/home/alice/shared-note").exists()
        assert not realm.host("bridge").path("/builds/alice-note").exists()
    finally:
        realm.host("login").run(["rm", "-rf", "/home/alice/shared-note", "/builds/alice-note"])


def test_home_is_closed_to_other_people(realm: Realm) -> None:
    refused = realm.host("login").run(["ls", "/home/alice"], user="bob", check=False)
    assert refused.returncode != 0
    assert b"Permission denied" in refused.stderr


def test_command_runs_as_the_person_with_a_clean_environment(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKED", "secret")
    login = realm.host("login")
    assert _text(realm, "login", "id", user="alice") == (
        "uid=20001(alice) gid=20001(alice) groups=20001(alice),21001(chem)"
    )
    env = login.run(["env"], user="alice", env={"GIVEN": "yes"}).stdout.decode().splitlines()
    names = {line.partition("=")[0] for line in env}
    assert names == {"PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL", "GIVEN"}
    assert "HOME=/home/alice" in env
    assert _text(realm, "login", "pwd", user="alice") == "/home/alice"


def test_command_passes_input_output_and_code_through(realm: Realm) -> None:
    done = realm.host("desk").run(["sh", "-c", "cat; echo no >&2; exit 3"], check=False, input=b"\x00\xff")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"\x00\xff", b"no\n")


def test_failed_command_says_what_it_printed(realm: Realm) -> None:
    with pytest.raises(RealmError, match="ended with 4") as caught:
        realm.host("desk").run(["sh", "-c", "echo because >&2; exit 4"])
    assert caught.value.code == "realm.command_failed"
    assert caught.value.evidence == "because"


def test_command_that_hangs_is_killed_with_its_children(realm: Realm) -> None:
    mark = f"0.{os.getpid()}"
    with pytest.raises(RealmError) as caught:
        realm.host("desk").run(["sh", "-c", f"sleep 1000{mark} & sleep 1000{mark}"], timeout=0.5)
    assert caught.value.code == "realm.command_timeout"
    assert f"1000{mark}" not in _text(realm, "desk", "ps", "ax", "-o", "args")


def test_processes_of_another_host_are_not_visible(realm: Realm) -> None:
    assert "slurmctld" in _text(realm, "ctl", "ps", "ax", "-o", "comm")
    assert "slurmctld" not in _text(realm, "node1", "ps", "ax", "-o", "comm")


def _network_namespace() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())


def test_thread_opens_sockets_in_the_hosts_network_and_comes_back(realm: Realm) -> None:
    login, before = realm.host("login"), _network_namespace()
    with realm.host("desk").network(), socket.create_connection((login.address, 22), timeout=30) as connection:
        assert connection.getsockname()[0] == realm.host("desk").address
        assert connection.recv(8) == b"SSH-2.0-"
        assert _network_namespace() != before
        with ThreadPoolExecutor(1) as pool:
            inherited = pool.submit(_network_namespace).result()
    assert _network_namespace() == before
    with pytest.raises(RuntimeError, match="on purpose"), login.network():
        raise RuntimeError("on purpose")
    assert _network_namespace() == before
    assert inherited != before, "a thread started inside stays inside: keep pools out of the block"


def test_path_follows_links_inside_the_host(realm: Realm) -> None:
    desk = realm.host("desk")
    desk.run(["ln", "-sfn", "/etc/hostname", "/tmp/link"])
    desk.run(["ln", "-sfn", "loop", "/tmp/loop"])
    assert desk.read("/tmp/link") == b"desk.realm.test\n"
    assert desk.path("/var/run/x") == desk.path("/run/x")
    with pytest.raises(OSError, match="too many links"):
        desk.path("/tmp/loop")


def test_written_file_has_the_mode_and_owner_that_were_asked(realm: Realm) -> None:
    desk = realm.host("desk")
    desk.write("/tmp/deep/er/file", b"x", mode=0o640, owner="alice")
    assert _text(realm, "desk", "stat", "-c", "%U %G %a", "/tmp/deep/er/file") == "alice alice 640"
    with pytest.raises(KeyError, match="no user nobody-here"):
        desk.write("/tmp/other", b"x", owner="nobody-here")
    assert not desk.path("/tmp/other").exists()


def test_our_python_and_checkout_are_there_but_read_only(realm: Realm) -> None:
    desk = realm.host("desk")
    found = desk.run([sys.executable, "-c", "import realm; print(realm.__file__)"], cwd=str(CHECKOUT)).stdout.decode()
    assert found.strip() == str(CHECKOUT / "realm" / "__init__.py")
    refused = desk.run(["touch", str(CHECKOUT / "touched")], check=False)
    assert b"Read-only file system" in refused.stderr


def test_unknown_host_and_part_are_refused_with_the_choices() -> None:
    with pytest.raises(RealmError, match=r"Choose from: kdc, login, slurm") as caught:
        Realm(parts=("lustre",))
    assert caught.value.code == "realm.unknown_part"
    with pytest.raises(RealmError) as caught:
        Realm(hosts=("nas",))
    assert caught.value.code == "realm.unknown_host"


@pytest.mark.parametrize("name", ["", "../up", "A", "a/b", "-x", "x" * 41, "é"])
def test_name_that_could_leave_its_directory_is_refused(name: str) -> None:
    from realm.workspace import located

    with pytest.raises(RealmError) as caught:
        located(name)
    assert caught.value.code == "realm.bad_name"


def test_powered_off_host_loses_run_and_tmp_and_comes_back_with_the_rest() -> None:
    with Realm(parts=(), hosts=("desk", "bridge")) as realm:
        desk = realm.host("desk")
        desk.write("/tmp/volatile", "x")
        desk.write("/var/lib/kept", "x")
        first, boot_id = desk.read(BOOT_ID), _text(realm, "desk", "cat", BOOT_ID)
        left = desk.popen(["sleep", "1000"])
        realm.power_off("desk")
        assert left.wait(30) != 0
        assert subprocess.run(["ps", "-p", str(left.pid)], capture_output=True, check=False).returncode == 1
        realm.power_on("desk")
        assert not desk.path("/tmp/volatile").exists()
        assert desk.read("/var/lib/kept") == b"x"
        assert desk.read(BOOT_ID) != first == f"{boot_id}\n".encode() != realm.host("bridge").read(BOOT_ID)
        # Nothing listens on that host, and its refusal comes over the switch.
        with desk.network(), pytest.raises(ConnectionRefusedError):
            socket.create_connection((realm.host("bridge").address, 22), timeout=30)


def test_rebooted_host_keeps_its_tmp_if_asked_and_nothing_else_that_a_boot_empties() -> None:
    with Realm(parts=(), hosts=("desk",)) as realm:
        desk = realm.host("desk")
        for folder in ("/tmp", "/run", "/var/tmp"):
            desk.write(f"{folder}/left", "x", mode=0o600, owner="alice")
        realm.reboot("desk", keep_tmp=True)
        assert _text(realm, "desk", "stat", "-c", "%U %a", "/tmp/left", "/tmp") == "alice 600\nroot 1777"
        assert not desk.path("/run/left").exists()
        assert not desk.path("/var/tmp/left").exists()
        realm.reboot("desk")
        assert not desk.path("/tmp/left").exists()
        assert _text(realm, "desk", "stat", "-c", "%U %a", "/tmp") == "root 1777"
