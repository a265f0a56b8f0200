"""The set-up scripts for FreeIPA and Active Directory: read by a shell, and saying what they would do.

None of these servers is here; the Samba one was run against a live domain controller by hand (docs/kdc.md).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
IPA = DEPLOY / "freeipa" / "setup-delegation"
SAMBA = DEPLOY / "ad" / "setup-delegation-samba"
WINDOWS = DEPLOY / "ad" / "setup-delegation.ps1"
TARGETS = "host/login.example.org\nlustre_mds/mds1.example.org\n"


def dry_run(script: Path, tmp_path: Path, *options: str, targets: str = TARGETS) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "targets"
    file.write_text(targets)
    realm = ["--realm", "EXAMPLE.ORG"] if script == SAMBA else []
    argv = [str(script), "--dry-run", "--bridge", "bridge.example.org", *realm, "--targets", str(file), *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("script", [IPA, SAMBA], ids=lambda path: path.name)
def test_a_shell_can_read_it(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=20)


def test_freeipa_gets_services_rule_targets_flags_and_keytabs(tmp_path: Path) -> None:
    done = dry_run(IPA, tmp_path, "--keytabs", "/root/keytabs", "--max-life", "90", "slurm")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for wanted in (
        "ipa service-add ci-bridge/bridge.example.org --force",
        "ipa servicedelegationtarget-add-member ci-bridge-targets --principals=host/login.example.org",
        "ipa servicedelegationtarget-add-member ci-bridge-targets --principals=lustre_mds/mds1.example.org",
        "ipa servicedelegationrule-add-member ci-bridge --principals=ci-bridge/bridge.example.org",
        "ipa servicedelegationrule-add-target ci-bridge --servicedelegationtargets=ci-bridge-targets",
        "ipa service-mod ci-bridge/bridge.example.org --ok-to-auth-as-delegate=true",
        "kadmin.local modprinc -allow_renewable +requires_preauth -maxlife 90 minutes ci-bridge/bridge.example.org",
        "kadmin.local modprinc -allow_forwardable HTTP/bridge.example.org",
        "kadmin.local modprinc -allow_forwardable admin",
        "kadmin.local modprinc -allow_forwardable slurm",
        "ipa-getkeytab -e aes256-cts,aes128-cts -p ci-bridge/bridge.example.org -k /root/keytabs/bridge.keytab",
    ):
        assert wanted in lines
    assert "kadmin.local modprinc -allow_forwardable ci-bridge/bridge.example.org" not in lines


def test_samba_gets_accounts_list_and_who_is_never_impersonated(tmp_path: Path) -> None:
    done = dry_run(SAMBA, tmp_path, "--keytabs", "/root/keytabs", "svc-login")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for wanted in (
        "samba-tool user rename ci-bridge --upn=ci-bridge/bridge.example.org@EXAMPLE.ORG",
        "samba-tool delegation add-service ci-bridge lustre_mds/mds1.example.org",
        "samba-tool delegation for-any-protocol ci-bridge on",
        "samba-tool user sensitive Administrator on",
        "samba-tool user sensitive svc-login on",
        "samba-tool domain exportkeytab /root/keytabs/http.keytab --principal=HTTP/bridge.example.org@EXAMPLE.ORG",
    ):
        assert wanted in lines
    assert "samba-tool user sensitive ci-bridge on" not in lines


@pytest.mark.parametrize("script", [IPA, SAMBA], ids=lambda path: path.name)
@pytest.mark.parametrize(
    "line", ["host/a b", "--all", "host/x;id", "host/$(id)", "host/x'", "-k/x", "host/x`id`", "host", "host/a/b", "é/x"]
)
@pytest.mark.threat("T29")
def test_a_target_that_is_no_service_name_never_becomes_a_command(script: Path, tmp_path: Path, line: str) -> None:
    done = dry_run(script, tmp_path, targets=f"{TARGETS}{line}\n")
    assert done.returncode == 65
    assert done.stdout == ""


@pytest.mark.parametrize("script", [IPA, SAMBA], ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["a b", "-x", "a;id", "$(id)"])
@pytest.mark.threat("T29")
def test_a_name_to_protect_that_is_none_never_becomes_a_command(script: Path, tmp_path: Path, name: str) -> None:
    done = dry_run(script, tmp_path, "admin", name)
    assert done.returncode == 65
    assert done.stdout == ""


@pytest.mark.parametrize("script", [IPA, SAMBA], ids=lambda path: path.name)
def test_an_empty_list_is_refused(script: Path, tmp_path: Path) -> None:
    assert dry_run(script, tmp_path, targets="\n").returncode == 65


@pytest.mark.parametrize("script", [IPA, SAMBA], ids=lambda path: path.name)
@pytest.mark.parametrize("options", [(), ("--bridge",), ("--bridge", "b"), ("--nonsense",)], ids=str)
def test_a_wrong_call_is_told_how(script: Path, options: tuple[str, ...]) -> None:
    done = subprocess.run([str(script), *options], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 64
    assert "--dry-run" in done.stderr


def test_windows_asks_before_each_change() -> None:
    """Every command that changes something stands inside a ShouldProcess, so that -WhatIf changes nothing."""
    depth, guarded = 0, []
    for line in WINDOWS.read_text(encoding="utf-8").splitlines():
        if "ShouldProcess(" in line:
            guarded.append(depth)
        if re.match(r"\s*(&|New-AD|Set-AD|Remove-AD)", line):
            assert guarded, line
        depth += line.count("{") - line.count("}")
        while guarded and depth <= guarded[-1]:
            guarded.pop()
    assert depth == 0
