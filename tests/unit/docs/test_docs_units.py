"""The systemd units confine broker and web as far as systemd can tell, and as the processes need it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import error_codes
import pytest

DEPLOY = error_codes.CHECKOUT / "deploy"
DROP_IN = DEPLOY / "examples" / "ci-bridge-broker-credentials.conf"
EXPOSURE = {"ci-bridge-broker.service": 14, "ci-bridge.service": 13}
"""In tenths, of systemd-analyze security 252; left are the network, unix sockets, the database's group and umask."""


def unit(name: str) -> dict[str, list[str]]:
    """Every directive of a unit with its values, in order."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(
        r"^(\w+)=(.*)$", (DEPLOY / "systemd" / name).read_text(encoding="utf-8"), re.MULTILINE
    ):
        found.setdefault(key, []).append(value)
    return found


def analyze(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run systemd-analyze; it needs no running systemd for this."""
    program = shutil.which("systemd-analyze")
    assert program is not None, "needs Debian's systemd: run scripts/setup"
    return subprocess.run([program, *arguments], capture_output=True, timeout=60, check=False)


@pytest.mark.threat("T27")
@pytest.mark.parametrize(("name", "bound"), EXPOSURE.items())
def test_a_service_is_no_more_exposed_than_it_was(name: str, bound: int) -> None:
    path = str(DEPLOY / "systemd" / name)
    done = analyze("security", "--offline=true", "--no-pager", f"--threshold={bound}", path)
    assert done.returncode == 0, done.stdout.decode()[-200:]
    assert b"Overall exposure level" in done.stdout


REQUIRED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "LimitCORE": "0",
    "MemorySwapMax": "0",
    "MemoryDenyWriteExecute": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "ProcSubset": "pid",
    "SystemCallArchitectures": "native",
}


@pytest.mark.threat("T27")
@pytest.mark.parametrize("name", EXPOSURE)
def test_what_the_threat_model_asks_of_a_service_is_there(name: str) -> None:
    found = unit(name)
    assert {key: found.get(key) for key in REQUIRED} == {key: [value] for key, value in REQUIRED.items()}
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    assert set(found["RestrictAddressFamilies"][0].split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    assert "KRB5CCNAME" in found["UnsetEnvironment"][0].split()


@pytest.mark.threat("T21")
def test_web_can_not_reach_what_is_the_broker_s() -> None:
    web, broker = unit("ci-bridge.service"), unit("ci-bridge-broker.service")
    hidden = {path.lstrip("-") for path in web["InaccessiblePaths"][0].split()}
    assert {"/etc/ci-bridge/bridge.keytab", "/etc/ci-bridge/http.keytab", "/var/lib/ci-bridge-broker"} <= hidden
    assert web["User"] != broker["User"]
    assert web["Group"] != broker["Group"]
    assert "SupplementaryGroups" not in web


@pytest.mark.threat("T28")
def test_the_broker_can_see_who_asks_it() -> None:
    broker = unit("ci-bridge-broker.service")
    assert broker["ProtectProc"] == ["noaccess"]
    assert "PrivateUsers" not in broker
    assert broker["LimitMEMLOCK"] == ["infinity"]


def test_a_long_upgrade_of_the_database_is_not_killed_in_the_middle() -> None:
    """TimeoutStartSec= holds for ExecStartPre= too, and is 90 s where nothing is said (systemd.service(5))."""
    broker = unit("ci-bridge-broker.service")
    assert broker["ExecStartPre"] == ["/opt/ci-bridge/.venv/bin/ci-bridge db upgrade"]
    assert broker["TimeoutStartSec"] == ["30min"]


SEES = """
import os, sys
from bridge.broker.peer import can_see_processes
os.setresgid(65532, 65532, 65532)
os.setresuid(65532, 65532, 65532)
print(can_see_processes())
"""


@pytest.mark.threat("T28")
@pytest.mark.parametrize(("option", "sees"), [("noaccess", "True"), ("invisible", "False")])
def test_what_protectproc_does_to_the_broker(tmp_path: Path, option: str, sees: str) -> None:
    """The mount that systemd makes for ProtectProc= and ProcSubset=pid, in a mount namespace of its own."""
    mount = 'mount -t proc -o "hidepid=$2,subset=pid" proc "$1" && mount --move "$1" /proc && shift 2 && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "--", "bash", "-c", mount, "bash"),
            *(str(tmp_path), option, sys.executable, "-B", "-c", SEES),
        ],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=error_codes.CHECKOUT,
    )
    assert (done.stdout.decode().strip(), done.stderr) == (sees, b"")


NEEDS = """
import ctypes, mmap, platform, struct
numbers = {"x86_64": (9, 10, 329), "aarch64": (222, 226, 288)}
change, protect, protect_key = numbers[platform.machine()]
steps = [
    (0x20, 0, 0, 0),
    (0x15, 2, 0, change), (0x15, 4, 0, protect), (0x15, 3, 6, protect_key),
    (0x20, 0, 0, 32), (0x54, 0, 0, 6), (0x15, 4, 3, 6),
    (0x20, 0, 0, 32), (0x54, 0, 0, 4), (0x15, 1, 0, 4),
    (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    pass
else:
    raise SystemExit("the filter is not in force")
from pathlib import Path
import bridge.api.app, bridge.broker.main
from bridge.kerberos.negotiate import Acceptor
from bridge.policy.bundle import load_bundle
from bridge.policy.engine import Engine
from cryptography.hazmat.primitives.asymmetric import rsa
Engine(load_bundle(Path("policies")))
rsa.generate_private_key(65537, 2048).public_key()
assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda number: number + 1)(1) == 2
"""


def test_broker_and_web_need_no_memory_that_is_written_and_executed() -> None:
    """Under a filter like that of MemoryDenyWriteExecute= (systemd.exec(5)) libraries load, Cedar and keys work."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", NEEDS], capture_output=True, timeout=120, check=False, cwd=error_codes.CHECKOUT
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_systemd_takes_the_broker_s_unit_with_its_keytabs_as_credentials(tmp_path: Path) -> None:
    program = tmp_path / "ci-bridge"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("ci-bridge-broker.service", "ci-bridge-broker.socket"):
        text = (DEPLOY / "systemd" / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/opt/ci-bridge/.venv/bin/ci-bridge", str(program)))
    folder = tmp_path / "ci-bridge-broker.service.d"
    folder.mkdir()
    shutil.copy(DROP_IN, folder / "credentials.conf")
    done = analyze("verify", "--man=no", str(tmp_path / "ci-bridge-broker.service"))
    assert (done.returncode, done.stderr.decode()) == (0, "")
    names = re.findall(r"^LoadCredential=([a-z.]+):/etc/ci-bridge/\1$", DROP_IN.read_text(), re.MULTILINE)
    assert names == ["bridge.keytab", "http.keytab"]
    for name in names:
        assert f'keytab = "/run/credentials/ci-bridge-broker.service/{name}"' in DROP_IN.read_text()
