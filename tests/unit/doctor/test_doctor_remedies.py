"""Each remedy is a whole command of the KDC that the site has, for every kind of finding."""

from __future__ import annotations

import pytest

from bridge.doctor.remedies import KdcKind, Problem, Remedies

BRIDGE = "ci-bridge/bridge.example.org@EXAMPLE.ORG"
SERVICE = "lustre_mds/mds1.example.org@EXAMPLE.ORG"
TOOLS = {
    KdcKind.MIT: ("kadmin.local", "ldapmodify", "setup-delegation"),
    KdcKind.FREEIPA: ("ipa ", "ipa-getkeytab", "kadmin.local"),
    KdcKind.AD: ("AD", "ktpass", "setspn", "Account"),
    KdcKind.SAMBA: ("samba-tool", "smb.conf", "Samba"),
}


@pytest.mark.parametrize("problem", Problem)
@pytest.mark.parametrize("kind", KdcKind)
def test_every_problem_has_a_command_of_that_kdc(kind: KdcKind, problem: Problem) -> None:
    text = Remedies(kind, BRIDGE, "/etc/ci-bridge/bridge.keytab").to(problem, SERVICE, 90)
    assert any(tool in text for tool in TOOLS[kind])
    assert "{name}" not in text
    assert "{bridge}" not in text
    assert "''" not in text
    assert text.endswith(".")


@pytest.mark.parametrize("problem", [Problem.TARGET_MISSING, Problem.TARGET_TOO_MANY])
def test_who_knows_the_entry_gets_ldapmodify_and_who_does_not_gets_the_script(problem: Problem) -> None:
    remedies = Remedies(KdcKind.MIT, BRIDGE, "/etc/ci-bridge/bridge.keytab")
    assert "setup-delegation --bridge bridge.example.org --apply" in remedies.to(problem, SERVICE)
    text = remedies.knowing("krbPrincipalName=x,dc=example").to(problem, SERVICE)
    assert "'krbPrincipalName=x,dc=example' " in text
    assert f"'{SERVICE}' | ldapmodify" in text


def test_active_directory_names_the_account_and_the_name_without_realm() -> None:
    text = Remedies(KdcKind.AD, BRIDGE, "k").to(Problem.TARGET_MISSING, SERVICE)
    assert "Set-ADUser ci-bridge -Add @{'msDS-AllowedToDelegateTo'='lustre_mds/mds1.example.org'}" in text


def test_a_life_is_named_in_minutes() -> None:
    assert '-maxlife "90 minutes"' in Remedies(KdcKind.MIT, BRIDGE, "k").to(Problem.LIFE, BRIDGE, 90)
