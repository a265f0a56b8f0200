"""``deploy/kdc/setup-delegation`` on the live KDC: what it makes, what it leaves alone, and that it may run daily."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from realm import Realm
from realm.principals import BRIDGE, DELEGATION_TARGETS
from realm.workspace import CHECKOUT

PROGRAM = str(CHECKOUT / "deploy" / "kdc" / "setup-delegation")
CLUSTERS = "/root/setup/clusters.toml"
PRINCIPAL, HTTP = "ci-bridge/second.realm.test", "HTTP/second.realm.test"
LISTED = sorted(f"{name}@REALM.TEST" for name in DELEGATION_TARGETS)


def run(realm: Realm, *options: str) -> subprocess.CompletedProcess[bytes]:
    return realm.host("kdc").run([PROGRAM, *options], check=False)


def set_up(realm: Realm, *options: str) -> str:
    done = run(realm, "--bridge", "second.realm.test", *options, CLUSTERS)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


SEARCH = [
    "ldapsearch",
    "-Q",
    "-Y",
    "EXTERNAL",
    "-H",
    "ldapi:///",
    "-LLL",
    "-o",
    "ldif-wrap=no",
    "-b",
    "dc=realm,dc=test",
]


def search(realm: Realm, text_filter: str, *attributes: str) -> str:
    return realm.host("kdc").run([*SEARCH, text_filter, *attributes]).stdout.decode()


def database(realm: Realm) -> str:
    """Everything that the program could change, without the keys; the server gives entries in any order."""
    names = ["krbPrincipalName", "krbTicketFlags", "krbMaxTicketLife", "krbAllowedToDelegateTo", "krbExtraData"]
    return "\n\n".join(sorted(search(realm, "(krbPrincipalName=*)", *names).split("\n\n")))


def listed(realm: Realm, principal: str) -> list[str]:
    text = search(realm, f"(krbPrincipalName={principal}@REALM.TEST)", "krbAllowedToDelegateTo")
    return sorted(line.partition(": ")[2] for line in text.splitlines() if line.startswith("krbAllowed"))


@pytest.fixture
def ready(realm: Realm) -> Iterator[Realm]:
    """A realm without the second bridge; gone again afterwards, with whatever a test added."""
    host = realm.host("kdc")
    host.write(CLUSTERS, (CHECKOUT / "policies" / "clusters.toml").read_bytes())
    host.write("/root/setup/accounts.toml", '[floor]\nuid = 1000\n[denied]\nusers = ["slurm"]\n')
    before = database(realm)
    yield realm
    for name in (PRINCIPAL, HTTP, "slurm", "backup", "host/new.realm.test"):
        if f": {name}@REALM.TEST\n" in database(realm):
            realm.kdc.delprinc(name)
    assert database(realm) == before


def test_it_says_what_it_would_do_and_changes_nothing(ready: Realm) -> None:
    before = database(ready)
    done = run(ready, "--bridge", "second.realm.test", CLUSTERS)
    assert done.returncode == 1
    assert f"delegate to: {LISTED[0]}" in done.stdout.decode()
    assert database(ready) == before


def test_it_makes_both_principals_their_flags_the_list_and_keytabs(ready: Realm) -> None:
    text = set_up(ready, "--max-life", "90", "--keytabs", "/root/setup/keytabs", "--apply")
    flags = ready.kdc.kadmin(f"getprinc {PRINCIPAL}")
    assert "OK_TO_AUTH_AS_DELEGATE" in flags
    assert "DISALLOW_RENEWABLE" in flags
    assert "REQUIRES_PRE_AUTH" in flags
    assert "Maximum ticket life: 0 days 01:30:00" in flags
    assert "DISALLOW_FORWARDABLE" in ready.kdc.kadmin(f"getprinc {HTTP}")
    assert listed(ready, PRINCIPAL) == LISTED
    for file, name in (("bridge.keytab", PRINCIPAL), ("http.keytab", HTTP)):
        path = ready.host("kdc").path(f"/root/setup/keytabs/{file}")
        assert path.stat().st_mode & 0o777 == 0o600
        assert f"wrote: /root/setup/keytabs/{file}" in text
        ready.host("kdc").run(["kinit", "-c", "MEMORY:x", "-k", "-t", f"/root/setup/keytabs/{file}", name])
        assert path.read_bytes() not in text.encode()


def test_the_second_run_changes_nothing_and_the_keytab_stays_good(ready: Realm) -> None:
    set_up(ready, "--keytabs", "/root/setup/keytabs", "--apply")
    before, keytab = database(ready), ready.host("kdc").read("/root/setup/keytabs/bridge.keytab")
    assert (
        set_up(ready)
        == f"left alone: {BRIDGE}@REALM.TEST delegates itself; protect it with --never {BRIDGE} if it need not\n"
    )
    set_up(ready, "--keytabs", "/root/setup/keytabs", "--apply")
    assert database(ready) == before
    again = ready.host("kdc").read("/root/setup/keytabs/bridge.keytab")
    assert len(again) == len(keytab)
    ready.host("kdc").run(["kinit", "-c", "MEMORY:x", "-k", "-t", "/root/setup/keytabs/bridge.keytab", PRINCIPAL])


@pytest.mark.threat("T22")
def test_a_name_too_many_does_not_stay_on_the_list(ready: Realm) -> None:
    set_up(ready, "--apply")
    ready.kdc.set_delegation_targets(PRINCIPAL, (*DELEGATION_TARGETS, "host/node1.realm.test"))
    assert "no longer delegate to: host/node1.realm.test@REALM.TEST" in set_up(ready, "--apply")
    assert listed(ready, PRINCIPAL) == LISTED


@pytest.mark.threat("T22")
def test_flags_that_somebody_took_away_come_back(ready: Realm) -> None:
    set_up(ready, "--apply")
    ready.kdc.modprinc(PRINCIPAL, "-ok_to_auth_as_delegate", "+allow_renewable", "-requires_preauth", "-maxlife", "7d")
    set_up(ready, "--apply")
    flags = ready.kdc.kadmin(f"getprinc {PRINCIPAL}")
    assert "OK_TO_AUTH_AS_DELEGATE" in flags
    assert "DISALLOW_RENEWABLE" in flags
    assert "REQUIRES_PRE_AUTH" in flags
    assert "Maximum ticket life: 0 days 03:00:00" in flags


def test_a_service_that_requires_preauthentication_takes_what_the_bridge_gets(ready: Realm) -> None:
    """As after a plain addprinc with our own kdc.conf, whose default_principal_flags are +preauth."""
    host, cache, keytab = ready.host("kdc"), "/root/setup/check", "/root/setup/keytabs/bridge.keytab"
    host.write(CLUSTERS, host.read(CLUSTERS).decode().replace("lustre_mds/mds2", "host/new"))
    ready.kdc.addprinc("host/new.realm.test", "+requires_preauth")
    set_up(ready, "--keytabs", "/root/setup/keytabs", "--apply")
    try:
        host.run(["kinit", "-f", "-k", "-t", keytab, "-c", cache, PRINCIPAL])
        host.run(["kvno", "-c", cache, "-k", keytab, "-U", "alice", "-P", "host/new.realm.test"])
    finally:
        host.path(cache).unlink(missing_ok=True)


@pytest.mark.threat("T18")
def test_new_services_and_denied_users_do_not_stay_open_and_people_are_left_alone(ready: Realm) -> None:
    ready.kdc.addprinc("host/new.realm.test")
    ready.kdc.addprinc("slurm")
    ready.kdc.addprinc("backup")
    people = {name: ready.kdc.kadmin(f"getprinc {name}") for name in ("alice", "bob", "carol")}
    set_up(ready, "--accounts", "/root/setup/accounts.toml", "--never", "backup", "--apply")
    for name in ("host/new.realm.test", "slurm", "backup"):
        assert "DISALLOW_FORWARDABLE" in ready.kdc.kadmin(f"getprinc {name}")
    assert {name: ready.kdc.kadmin(f"getprinc {name}") for name in people} == people
    assert "DISALLOW_FORWARDABLE" not in ready.kdc.kadmin("getprinc krbtgt/REALM.TEST")
    assert "DISALLOW_FORWARDABLE" not in ready.kdc.kadmin(f"getprinc {BRIDGE}")


@pytest.mark.threat("T18")
def test_a_principal_with_an_odd_name_is_protected_and_does_not_become_a_command(ready: Realm) -> None:
    odd = "x -allow_tix alice/y"
    ready.host("kdc").run(["kadmin.local", "addprinc", "-randkey", odd])
    try:
        set_up(ready, "--apply")
        shown = ready.host("kdc").run(["kadmin.local", "getprinc", odd]).stdout.decode()
    finally:
        ready.host("kdc").run(["kadmin.local", "delprinc", "-force", odd])
    assert "DISALLOW_FORWARDABLE" in shown
    assert "DISALLOW_ALL_TIX" not in ready.kdc.kadmin("getprinc alice")


def test_a_target_without_a_principal_is_named_and_is_no_success(ready: Realm) -> None:
    host = ready.host("kdc")
    host.write(CLUSTERS, host.read(CLUSTERS).decode().replace("mds2", "mds7"))
    done = run(ready, "--bridge", "second.realm.test", "--apply", CLUSTERS)
    assert done.returncode == 1
    assert "missing: lustre_mds/mds7.realm.test@REALM.TEST has no principal" in done.stdout.decode()


def test_the_targets_can_be_printed_for_other_kdcs(ready: Realm) -> None:
    done = run(ready, "--print-targets", CLUSTERS)
    assert done.stdout.decode().split() == sorted(DELEGATION_TARGETS)


@pytest.mark.parametrize("options", [(), ("--bridge",), ("--nonsense", CLUSTERS), (CLUSTERS,)], ids=str)
def test_a_wrong_call_is_told_so(ready: Realm, options: tuple[str, ...]) -> None:
    assert run(ready, *options).returncode == 64


def test_a_file_that_is_not_there_is_said(ready: Realm) -> None:
    done = run(ready, "--bridge", "second.realm.test", "/nonexistent")
    assert done.returncode == 1
    assert b"/nonexistent" in done.stderr
