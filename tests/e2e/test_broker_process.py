"""The live broker and web on their host, against everybody else there: their memory, their keys, their socket."""

from __future__ import annotations

import json
import re
import sys

import pytest

from realm import Realm

UNLOCKED = "has memory that is not locked, and may be swapped"

LOOK = """
import json, sys
from bridge.hardening import weaknesses
print(json.dumps([weaknesses(int(pid)) for pid in sys.argv[1:]]))
"""

INTRUDE = """
import ctypes, os, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def trace():
    if libc.ptrace(16, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
def copy():
    if libc.syscall(438, os.pidfd_open(pid), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
ways = {
    "memory": lambda: open(f"/proc/{pid}/mem", "rb"),
    "environment": lambda: open(f"/proc/{pid}/environ", "rb").read(),
    "files": lambda: os.listdir(f"/proc/{pid}/fd"),
    "trace": trace,
    "descriptor": copy,
}
for name, way in ways.items():
    try:
        way()
        print(name)
    except PermissionError:
        pass
"""

SQUAT = """
import os, sys
path = "/run/ci-bridge/broker.sock"
ways = {
    "unlink": lambda: os.unlink(path),
    "rename": lambda: os.rename(path, path + ".old"),
    "beside": lambda: open(path + ".new", "w"),
    "directory": lambda: os.rename("/run/ci-bridge", "/run/ci-bridge.old"),
    "mode": lambda: os.chmod("/run/ci-bridge", 0o777),
}
for name, way in ways.items():
    try:
        way()
        print(name)
    except PermissionError:
        pass
"""


@pytest.fixture(scope="module")
def processes(realm: Realm) -> dict[str, str]:
    """The process ids of ``broker`` and ``web`` on their host."""
    listing = realm.host("bridge").run(["ps", "-eo", "pid,args"]).stdout.decode()
    found = {
        "web": re.search(r"^ *(\d+) .*bridge\.cli\.main serve --web-only", listing, re.MULTILINE),
        "broker": re.search(r"^ *(\d+) .*bridge\.cli\.main broker --listen-fd", listing, re.MULTILINE),
    }
    return {name: match[1] for name, match in found.items() if match}


@pytest.mark.threat("T27")
def test_broker_and_web_have_no_weakness_that_the_machine_lets_them_shut(
    realm: Realm, processes: dict[str, str]
) -> None:
    bridge = realm.host("bridge")
    look = [sys.executable, "-P", "-B", "-c", LOOK, processes["broker"], processes["web"]]
    broker, web = json.loads(bridge.run(look).stdout)
    may_lock = bridge.run(["prlimit", "--memlock=unlimited:unlimited", "true"], check=False).returncode == 0

    assert broker == ([] if may_lock else [UNLOCKED])
    assert web == [UNLOCKED]


@pytest.mark.threat("T27")
@pytest.mark.parametrize("user", ["ci-bridge", "ci-bridge-broker", "alice"])
@pytest.mark.parametrize("process", ["broker", "web"])
def test_nobody_on_the_host_looks_into_broker_or_web(
    realm: Realm, processes: dict[str, str], process: str, user: str
) -> None:
    intrude = ["/usr/bin/python3", "-I", "-S", "-c", INTRUDE, processes[process]]
    assert realm.host("bridge").run(intrude, user=user).stdout == b""


@pytest.mark.threat("T21")
@pytest.mark.parametrize("user", ["ci-bridge", "alice"])
@pytest.mark.parametrize(
    "path",
    [
        "/etc/ci-bridge/bridge.keytab",
        "/etc/ci-bridge/http.keytab",
        "/etc/krb5.keytab",
        "/var/lib/ci-bridge-broker/seal.key",
        "/run/ci-bridge-broker/http.rcache",
    ],
)
def test_neither_web_nor_a_person_reads_the_broker_s_keys(realm: Realm, path: str, user: str) -> None:
    bridge = realm.host("bridge")
    assert bridge.run(["test", "-e", path.rpartition("/")[0]], check=False).returncode == 0
    for words in (["cat", path], ["cp", path, "/tmp/copy"], ["tee", "-a", path]):
        assert bridge.run(words, user=user, check=False).returncode != 0


@pytest.mark.threat("T28")
@pytest.mark.parametrize("user", ["ci-bridge", "ci-bridge-broker", "alice"])
def test_nobody_puts_another_socket_in_the_broker_s_place(realm: Realm, user: str) -> None:
    bridge = realm.host("bridge")
    assert bridge.run(["/usr/bin/python3", "-I", "-S", "-c", SQUAT], user=user).stdout == b""
    assert bridge.run(["stat", "-c", "%U %a", "/run/ci-bridge/broker.sock"]).stdout == b"ci-bridge 600\n"
    assert bridge.run(["stat", "-c", "%U", "/run/ci-bridge"]).stdout == b"root\n"
