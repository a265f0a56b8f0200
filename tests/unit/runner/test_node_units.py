"""The timer that looks after a node's tickets: soon enough, and with no more rights than its work needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[3] / "deploy" / "systemd"
SERVICE, TIMER = UNITS / "ci-bridge-node-refresh.service", UNITS / "ci-bridge-node-refresh.timer"
EXPOSURE = 32
"""In tenths, of systemd-analyze security 252; most of what is left is that it must be root and change files' owners."""


def _values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.threat("T23")
def test_a_tick_comes_within_a_minute() -> None:
    (pause,), (inaccuracy,) = _values(TIMER, "OnUnitInactiveSec"), _values(TIMER, "AccuracySec")
    assert int(pause.removesuffix("s")) + int(inaccuracy.removesuffix("s")) < 60
    assert _values(TIMER, "OnBootSec") == ["10s"]
    assert _values(SERVICE, "ExecStart") == ["/usr/lib/ci-bridge/ci-bridge-node refresh"]


@pytest.mark.threat("T37")
def test_the_service_can_not_do_more_than_it_must() -> None:
    program = shutil.which("systemd-analyze")
    assert program is not None, "needs Debian's systemd: run scripts/setup"
    argv = [program, "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", str(SERVICE)]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout.decode()[-200:]
    capabilities = set(_values(SERVICE, "CapabilityBoundingSet")[0].split())
    assert capabilities == {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETUID", "CAP_SETGID"}
    assert "KRB5CCNAME" in _values(SERVICE, "UnsetEnvironment")[0].split()


@pytest.mark.threat("T23")
def test_the_service_sees_the_nodes_own_tmp() -> None:
    assert _values(SERVICE, "PrivateTmp") == []
    assert "/tmp" in _values(SERVICE, "ReadWritePaths")[0].split()


@pytest.mark.threat("T23")
def test_the_service_can_reach_the_keyrings_of_users() -> None:
    """@system-service has @keyring and @setuid (systemd.exec(5)); what is taken away could break such caches."""
    assert _values(SERVICE, "SystemCallFilter") == ["@system-service"]
    assert _values(SERVICE, "KeyringMode") in ([], ["private"], ["inherit"])
    program = shutil.which("systemd-analyze")
    assert program is not None, "needs Debian's systemd: run scripts/setup"
    done = subprocess.run([program, "syscall-filter", "@system-service"], capture_output=True, timeout=60, check=True)
    assert {b"@keyring", b"@setuid"} <= set(done.stdout.split())
