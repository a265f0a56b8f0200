"""``ci-bridge doctor kerberos`` on the live KDC: each thing that is broken there is found, named, and has its remedy.

A bridge principal of its own, made by ``deploy/kdc/setup-delegation``, so that the realm's own bridge is left alone.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import krb5
import pytest

from realm import Realm, bridgehost
from realm.errors import RealmError
from realm.host import Host
from realm.principals import BRIDGE, BRIDGE_HTTP, BRIDGE_KEYTAB, DELEGATION_TARGETS, HTTP_KEYTAB
from realm.topology import KRB_REALM
from realm.workspace import CHECKOUT

PRINCIPAL, HTTP = "ci-bridge/doctor.realm.test", "HTTP/doctor.realm.test"
KEYTAB = "/etc/ci-bridge/doctor.keytab"
CONFIG = "/etc/ci-bridge/doctor.toml"
POLICIES = "/etc/ci-bridge/doctor-policies"
CLUSTERS = f"{POLICIES}/clusters.toml"
AES = "-e aes256-cts:normal,aes128-cts:normal"
MINUTES = 180

Findings = dict[str, dict[str, str]]


@dataclass
class Doctor:
    """Runs the command on a host of the realm and remembers all that it ever printed."""

    realm: Realm
    printed: list[bytes] = field(default_factory=list)

    def __call__(self, *options: str, host: str = "bridge", user: str = "ci-bridge-broker") -> Findings:
        argv = [*bridgehost.COMMAND, "doctor", "kerberos", "--json", "--config", CONFIG, *options]
        done = self.realm.host(host).run(argv, user=user, check=False)
        self.printed += [done.stdout, done.stderr]
        document: dict[str, Any] = json.loads(done.stdout)
        findings = document["sections"]["kerberos"]
        assert done.returncode == (1 if any(one["state"] == "failed" for one in findings) else 0)
        assert all(one["remedy"] for one in findings if one["state"] != "ok")
        return {f"{one['check']} {one['subject']}".removesuffix(f"@{KRB_REALM}"): one for one in findings}

    def on_the_kdc(self) -> Findings:
        """As root on the KDC, who can read its database."""
        return self("--ldap", "ldapi:///", host="kdc", user="root")


def wrong(found: Findings) -> dict[str, str]:
    return {name: one["state"] for name, one in found.items() if one["state"] != "ok"}


def set_up(realm: Realm, *options: str) -> None:
    program = str(CHECKOUT / "deploy" / "kdc" / "setup-delegation")
    realm.host("kdc").run(
        [program, "--bridge", "doctor.realm.test", "--max-life", str(MINUTES), "--apply", *options, CLUSTERS]
    )


def write_keytabs(realm: Realm) -> None:
    for host, owner in ((realm.host("bridge"), "ci-bridge-broker"), (realm.host("kdc"), "root")):
        realm.kdc.ktadd([PRINCIPAL], host, KEYTAB, owner=owner)
        realm.kdc.ktadd([HTTP], host, "/etc/ci-bridge/doctor-http.keytab", owner=owner)


def write_settings(host: Host) -> None:
    text = bridgehost._SETTINGS.replace(BRIDGE, PRINCIPAL).replace(BRIDGE_HTTP, HTTP)
    keytabs = f'keytab = "{KEYTAB}"\nhttp_keytab = "/etc/ci-bridge/doctor-http.keytab"\n'
    text = text.replace("[broker]\n", f"[broker]\n{keytabs}").replace(bridgehost.POLICIES, POLICIES)
    assert BRIDGE_KEYTAB not in text
    assert HTTP_KEYTAB not in text
    host.write(CONFIG, text)
    for path in sorted((CHECKOUT / "policies").rglob("*")):
        if path.is_file():
            host.write(f"{POLICIES}/{path.relative_to(CHECKOUT / 'policies')}", path.read_bytes())


@pytest.fixture(scope="module")
def doctor(realm: Realm) -> Iterator[Doctor]:
    hosts = realm.host("bridge"), realm.host("kdc")
    for host in hosts:
        write_settings(host)
    set_up(realm)
    write_keytabs(realm)
    doctor = Doctor(realm)
    yield doctor
    keys = b"".join(doctor.printed)
    for secret in secrets_of(realm):
        assert secret not in keys
    realm.kdc.delprinc(PRINCIPAL)
    realm.kdc.delprinc(HTTP)
    for host in hosts:
        for path in sorted(host.path(POLICIES).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        host.path(POLICIES).rmdir()
        for name in (CONFIG, KEYTAB, "/etc/ci-bridge/doctor-http.keytab"):
            host.path(name).unlink()


def secrets_of(realm: Realm) -> list[bytes]:
    """The keys of the keytab, in every form in which they could be printed."""
    context = krb5.init_context()
    keytab = krb5.kt_resolve(context, f"FILE:{realm.host('bridge').path(KEYTAB)}".encode())
    keys = [entry.key.data for entry in keytab]
    assert keys
    forms: list[Callable[[bytes], bytes]] = [bytes, lambda key: key.hex().encode(), base64.b64encode]
    return [form(key) for key in keys for form in forms]


@pytest.fixture
def restored(realm: Realm, doctor: Doctor) -> Iterator[Realm]:
    """The realm, for a test that changes the bridge's principal, its keytab or privileged names."""
    yield realm
    realm.kdc.kadmin(f"modprinc +allow_tix +allow_forwardable -expire never -maxrenewlife 0 {PRINCIPAL}")
    realm.kdc.modprinc("root", "-allow_forwardable")
    realm.kdc.modprinc("host/node1.realm.test", "-allow_forwardable")
    for host in (realm.host("bridge"), realm.host("kdc")):
        write_settings(host)
    set_up(realm)
    write_keytabs(realm)


def test_a_realm_that_was_set_up_by_the_script_is_well(doctor: Doctor) -> None:
    found = doctor("--user", "alice")
    assert wrong(found) == {}
    checks = {name.partition(" ")[0] for name in found}
    assert checks == {
        *("keytab", "keytab-kvno", "kdc-clock", "bridge-ticket", "ticket-life", "ticket-renewable", "enctypes"),
        *("kdc-release", "delegation-list", "protocol-transition", "never-impersonated", "user-tickets"),
    }
    assert found["user-tickets alice on pocket"]["detail"] == "3 tickets, aes256-sha1"


def test_the_database_says_the_same_as_the_kdc(doctor: Doctor) -> None:
    found = doctor.on_the_kdc()
    assert wrong(found) == {
        "user-tickets REALM.TEST": "not checked",
        f"directory-exposed {BRIDGE}": "warning",
    }
    assert found[f"directory-list {PRINCIPAL}"]["detail"] == "exactly the 3 services of clusters.toml"


@pytest.mark.threat("T22")
def test_no_person_is_impersonated_unless_a_test_user_is_named(doctor: Doctor) -> None:
    before = doctor.realm.log("krb5kdc")
    doctor()
    said = doctor.realm.log("krb5kdc").removeprefix(before)
    names = set(re.findall(r"s4u-client=(\S+)@REALM\.TEST", said))
    assert {"root", PRINCIPAL, "krbtgt/REALM.TEST"} <= names
    assert not names & {"alice", "bob", "mallory", "carol"}


Break = Callable[[Realm], object]


def targets(*names: str) -> Break:
    return lambda realm: realm.kdc.set_delegation_targets(PRINCIPAL, names)


def modify(*flags: str, name: str = PRINCIPAL) -> Break:
    return lambda realm: realm.kdc.modprinc(name, *flags)


def query(text: str) -> Break:
    return lambda realm: realm.kdc.kadmin(text)


LOGIN, MDS1, MDS2 = DELEGATION_TARGETS
BROKEN: dict[str, tuple[Break, str, str, str]] = {
    "a name too many": (
        targets(*DELEGATION_TARGETS, "host/node1.realm.test"),
        "delegation-list host/node1.realm.test",
        "clusters.toml does not need it",
        "setup-delegation --bridge doctor.realm.test --apply",
    ),
    "a name missing": (
        targets(LOGIN, MDS1),
        f"delegation-list {MDS2}",
        "the KDC refuses it",
        "setup-delegation --bridge doctor.realm.test --apply",
    ),
    "no name at all": (targets(), f"delegation-list {LOGIN}", "the KDC refuses it", "setup-delegation"),
    "no protocol transition": (
        modify("-ok_to_auth_as_delegate"),
        f"protocol-transition {PRINCIPAL}",
        "not forwardable",
        f"modprinc +ok_to_auth_as_delegate {PRINCIPAL}",
    ),
    "renewable": (
        modify("+allow_renewable", "-maxrenewlife", "7d"),
        f"ticket-renewable {PRINCIPAL}",
        "renewable tickets",
        f"modprinc -allow_renewable {PRINCIPAL}",
    ),
    "root can be impersonated": (
        modify("+allow_forwardable", name="root"),
        "never-impersonated root",
        "act as this principal",
        "modprinc -allow_forwardable root@REALM.TEST",
    ),
    "a service can be impersonated": (
        modify("+allow_forwardable", name="host/node1.realm.test"),
        "never-impersonated host/node1.realm.test",
        "act as this principal",
        "modprinc -allow_forwardable host/node1.realm.test@REALM.TEST",
    ),
    "new keys that the keytab has not": (
        query(f"cpw -randkey {AES} {PRINCIPAL}"),
        f"bridge-ticket {PRINCIPAL}",
        "it has kvno ",
        f"ktadd -norandkey -k bridge.keytab {PRINCIPAL}",
    ),
    "locked": (modify("-allow_tix"), f"bridge-ticket {PRINCIPAL}", "locked or expired", "modprinc +allow_tix"),
    "expired": (
        modify("-expire 2020-01-01"),
        f"bridge-ticket {PRINCIPAL}",
        "locked or expired",
        "-expire never",
    ),
    "not forwardable": (
        modify("-allow_forwardable"),
        f"bridge-ticket {PRINCIPAL}",
        "no forwardable ticket",
        f"modprinc +allow_forwardable {PRINCIPAL}",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.threat("T22")
def test_a_change_at_the_kdc_does_not_go_unseen(restored: Realm, doctor: Doctor, what: str) -> None:
    breaks, finding, detail, remedy = BROKEN[what]
    breaks(restored)
    found = doctor("--user", "alice")
    assert found[finding]["state"] == "failed"
    assert detail in found[finding]["detail"]
    assert remedy in found[finding]["remedy"]


@pytest.mark.parametrize(
    ("breaks", "finding", "remedy"),
    [
        (
            targets(*DELEGATION_TARGETS, "svc/nobody-thinks-of.it"),
            "directory-list svc/nobody-thinks-of.it",
            "delete: krbAllowedToDelegateTo",
        ),
        (targets(LOGIN, MDS1), f"directory-list {MDS2}", "add: krbAllowedToDelegateTo"),
        (targets(LOGIN, MDS1, MDS2.upper()), f"directory-list {MDS2.upper()}", "delete: krbAllowedToDelegateTo"),
        (modify("-ok_to_auth_as_delegate"), f"directory-flags {PRINCIPAL}", "+ok_to_auth_as_delegate"),
        (modify("+allow_renewable"), f"directory-flags {PRINCIPAL}", "-allow_renewable"),
        (modify("-allow_tix"), f"directory-flags {PRINCIPAL}", "+allow_tix"),
        (modify("+allow_forwardable", name="root"), "directory-exposed root", "-allow_forwardable root"),
        (
            modify("+allow_forwardable", name="host/node1.realm.test"),
            "directory-exposed host/node1.realm.test",
            "node1",
        ),
    ],
    ids=map(str, itertools.count()),
)
@pytest.mark.threat("T22")
def test_a_change_in_the_database_does_not_go_unseen(
    restored: Realm, doctor: Doctor, breaks: Break, finding: str, remedy: str
) -> None:
    breaks(restored)
    found = doctor.on_the_kdc()
    assert found[finding]["state"] == "failed"
    assert remedy in found[finding]["remedy"]


@pytest.mark.threat("T22")
def test_the_command_in_the_remedy_cures_it(restored: Realm, doctor: Doctor) -> None:
    targets(LOGIN, MDS1, "host/node1.realm.test")(restored)
    modify("-ok_to_auth_as_delegate")(restored)
    modify("+allow_forwardable", name="root")(restored)
    found = doctor.on_the_kdc()
    remedies = {one["remedy"] for name, one in found.items() if one["state"] == "failed" and "directory" in name}
    assert len(remedies) == 4
    for remedy in remedies:
        command = remedy.removeprefix("At the KDC: ").removesuffix(".")
        restored.host("kdc").run(["/bin/sh", "-c", command])
    assert wrong(doctor("--user", "alice")) == {}


@pytest.mark.threat("T26")
def test_an_rc4_key_is_found_in_the_keytab(restored: Realm, doctor: Doctor) -> None:
    restored.kdc.kadmin(f"cpw -randkey -e aes256-cts:normal,rc4-hmac:normal {PRINCIPAL}")
    write_keytabs(restored)
    found = doctor()
    assert found[f"enctypes {KEYTAB}"]["detail"] == "has a key of the weak kind RC4"
    assert f"cpw -randkey -e aes256-cts:normal,aes128-cts:normal {PRINCIPAL}" in found[f"enctypes {KEYTAB}"]["remedy"]
    restored.kdc.kadmin(f"cpw -randkey {AES} {PRINCIPAL}")


@pytest.fixture
def odd_target(restored: Realm) -> Iterator[str]:
    """A service of the cluster that does not exist yet."""
    name = "lustre_mds/mds9.realm.test"
    for host in (restored.host("bridge"), restored.host("kdc")):
        text = host.read(CLUSTERS).decode()
        host.write(CLUSTERS, text.replace("login_targets = [", f'login_targets = ["{name}", '))
    restored.kdc.set_delegation_targets(PRINCIPAL, (*DELEGATION_TARGETS, name))
    yield name
    with suppress(RealmError):
        restored.kdc.delprinc(name)


@pytest.mark.threat("T26")
def test_a_service_with_rc4_tickets_is_found(odd_target: str, doctor: Doctor) -> None:
    doctor.realm.kdc.kadmin(f"addprinc -randkey -e rc4-hmac:normal -allow_forwardable {odd_target}")
    found = doctor()
    assert found[f"enctypes {odd_target}"]["state"] == "failed"
    assert "it has no AES key, or wants pre-authentication" in found[f"enctypes {odd_target}"]["detail"]
    assert (
        f"cpw -randkey -e aes256-cts:normal,aes128-cts:normal {odd_target}" in found[f"enctypes {odd_target}"]["remedy"]
    )
    assert found["never-impersonated REALM.TEST"]["state"] == "ok"


def test_a_service_that_requires_what_the_bridge_does_not_show_is_found(odd_target: str, doctor: Doctor) -> None:
    doctor.realm.kdc.addprinc(odd_target, "-allow_forwardable", "+requires_preauth")
    doctor.realm.kdc.modprinc(PRINCIPAL, "-requires_preauth")
    found = doctor()[f"enctypes {odd_target}"]
    assert "wants pre-authentication of the bridge" in found["detail"]
    assert f"modprinc +requires_preauth {PRINCIPAL}" in found["remedy"]
    doctor.realm.kdc.modprinc(PRINCIPAL, "+requires_preauth")
    assert f"enctypes {odd_target}" not in doctor()


def test_a_target_without_a_principal_is_named(odd_target: str, doctor: Doctor) -> None:
    found = doctor("--user", "alice")
    assert found[f"delegation-list {odd_target}"]["state"] == "failed"
    assert "addprinc -randkey -allow_forwardable" in found[f"delegation-list {odd_target}"]["remedy"]
    assert "[kerberos.unknown_target]" in found["user-tickets alice on pocket"]["detail"]


@pytest.mark.threat("T26")
def test_a_kdc_that_does_not_sign_tickets_is_found(restored: Realm, doctor: Doctor) -> None:
    host = restored.host("kdc")
    before = host.read("/etc/krb5kdc/kdc.conf").decode()
    try:
        host.write(
            "/etc/krb5kdc/kdc.conf", before.replace("max_life = 10h", "max_life = 10h\n        disable_pac = true")
        )
        restored.restart_service("krb5kdc")
        found = doctor()
    finally:
        host.write("/etc/krb5kdc/kdc.conf", before)
        restored.restart_service("krb5kdc")
    assert found["kdc-release REALM.TEST"]["detail"] == "tickets have no PAC"
    assert wrong(doctor("--user", "alice")) == {}


@pytest.mark.parametrize(("minutes", "words"), [(600, "a thief of the keytab"), (60, "end sooner than policy says")])
def test_a_life_that_is_not_policys_is_a_warning(restored: Realm, doctor: Doctor, minutes: int, words: str) -> None:
    restored.kdc.kadmin(f'modprinc -maxlife "{minutes} minutes" {PRINCIPAL}')
    found = doctor("--user", "alice")
    assert wrong(found) == {f"ticket-life {PRINCIPAL}": "warning"}
    assert words in found[f"ticket-life {PRINCIPAL}"]["detail"]
    assert f'-maxlife "{MINUTES} minutes" {PRINCIPAL}' in found[f"ticket-life {PRINCIPAL}"]["remedy"]


def test_new_keys_that_the_keytab_has_beside_the_old_are_well(restored: Realm, doctor: Doctor) -> None:
    host = restored.host("kdc")
    host.write("/root/both.keytab", host.read(KEYTAB))
    restored.kdc.kadmin(f"ktadd -k /root/both.keytab {AES} {PRINCIPAL}")
    restored.host("bridge").write(KEYTAB, host.read("/root/both.keytab"), mode=0o600, owner="ci-bridge-broker")
    host.path("/root/both.keytab").unlink()
    assert wrong(doctor("--user", "alice")) == {}


def test_a_keytab_with_keys_of_others_is_a_warning(restored: Realm, doctor: Doctor) -> None:
    restored.kdc.ktadd([PRINCIPAL, HTTP], restored.host("bridge"), KEYTAB, owner="ci-bridge-broker")
    found = doctor("--user", "alice")
    assert wrong(found) == {f"keytab {KEYTAB}": "warning"}
    assert HTTP in found[f"keytab {KEYTAB}"]["detail"]


@pytest.mark.parametrize(
    ("user", "code"),
    [
        ("carol", "kerberos.client_revoked"),
        ("root", "kerberos.account_denied"),
        ("nobody-here", "account.unknown"),
        ("alice@REALM.TEST", "kerberos.account_malformed"),
    ],
    ids=map(str, itertools.count()),
)
def test_a_test_user_gets_the_refusal_that_a_job_would_get(doctor: Doctor, user: str, code: str) -> None:
    found = doctor("--user", user)
    assert wrong(found) == {f"user-tickets {user} on pocket": "failed"}
    assert f"[{code}]" in found[f"user-tickets {user} on pocket"]["detail"]


def test_a_locked_person_is_a_finding_until_unlocked(restored: Realm, doctor: Doctor) -> None:
    restored.kdc.modprinc("bob", "-allow_tix")
    try:
        assert wrong(doctor("--user", "bob")) == {"user-tickets bob on pocket": "failed"}
    finally:
        restored.kdc.modprinc("bob", "+allow_tix")
    assert wrong(doctor("--user", "bob")) == {}


def test_a_kdc_that_is_down_is_one_finding_and_no_crash(restored: Realm, doctor: Doctor) -> None:
    restored.stop_service("krb5kdc")
    try:
        found = doctor("--user", "alice")
    finally:
        restored.restart_service("krb5kdc")
    assert wrong(found) == {"kdc-clock REALM.TEST": "failed", f"bridge-ticket {PRINCIPAL}": "failed"}
    assert "[kerberos.kdc_unreachable]" in found[f"bridge-ticket {PRINCIPAL}"]["detail"]


@pytest.mark.threat("T9")
def test_a_clock_that_is_off_is_found(doctor: Doctor) -> None:
    argv = [*bridgehost.COMMAND, "doctor", "kerberos", "--json", "--config", CONFIG]
    done = doctor.realm.host("bridge").run(
        ["/usr/bin/faketime", "-f", "+120s", *argv], user="ci-bridge-broker", check=False
    )
    findings = {one["check"]: one for one in json.loads(done.stdout)["sections"]["kerberos"]}
    assert done.returncode == 1
    assert findings["kdc-clock"]["state"] == "failed"
    assert findings["kdc-clock"]["detail"].endswith("s behind this host's clock")


def test_webs_user_is_told_as_whom_to_look(doctor: Doctor) -> None:
    found = doctor(user="ci-bridge")
    assert wrong(found) == {"keytab REALM.TEST": "not checked"}
    assert found["keytab REALM.TEST"]["remedy"] == "Run ci-bridge doctor as ci-bridge-broker."


def test_a_directory_that_does_not_answer_is_said_and_the_kdc_is_asked_all_the_same(doctor: Doctor) -> None:
    found = doctor("--ldap", "ldapi://%2Fnonexistent", "--user", "alice")
    assert wrong(found) == {"directory ldapi://%2Fnonexistent": "not checked"}
    assert "user-tickets alice on pocket" in found


def test_remedies_are_those_of_the_kdc_that_the_site_has(restored: Realm, doctor: Doctor) -> None:
    targets(LOGIN, MDS1)(restored)
    for kind, command in (("freeipa", "ipa servicedelegationtarget-add-member"), ("samba", "samba-tool delegation")):
        assert command in doctor("--kdc", kind)[f"delegation-list {MDS2}"]["remedy"]


def test_people_see_each_finding_with_what_to_do(restored: Realm, doctor: Doctor) -> None:
    modify("+allow_forwardable", name="root")(restored)
    argv = [*bridgehost.COMMAND, "doctor", "kerberos", "--config", CONFIG, "--user", "alice"]
    done = restored.host("bridge").run(argv, user="ci-bridge-broker", check=False)
    doctor.printed += [done.stdout, done.stderr]
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "failed       never-impersonated   root@REALM.TEST" in text
    assert text.count("What to do: ") == 1


READER = "cn=reader,dc=realm,dc=test"
ROOT = 'dn.exact="gidNumber=0+uidNumber=0,cn=peercred,cn=external,cn=auth"'
READER_ENTRY = f"""\
dn: {READER}
changetype: add
objectClass: organizationalRole
objectClass: simpleSecurityObject
userPassword: only-to-read

dn: olcDatabase={{1}}mdb,cn=config
changetype: modify
add: olcAccess
olcAccess: {{0}}to attrs=krbPrincipalKey by {ROOT} manage by * none
olcAccess: {{1}}to attrs=userPassword by {ROOT} manage by anonymous auth
olcAccess: {{2}}to * by {ROOT} manage by dn.exact="{READER}" read
"""
READER_GONE = f"""\
dn: olcDatabase={{1}}mdb,cn=config
changetype: modify
delete: olcAccess
olcAccess: {{2}}
-
delete: olcAccess
olcAccess: {{1}}
-
delete: olcAccess
olcAccess: {{0}}

dn: {READER}
changetype: delete
"""


@pytest.fixture
def reader(realm: Realm) -> Iterator[tuple[str, ...]]:
    """Somebody who may read all of the directory but the keys."""
    kdc = realm.host("kdc")
    modify_directory = ["ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///"]
    kdc.run(modify_directory, input=READER_ENTRY.encode())
    kdc.write("/root/reader", "only-to-read", mode=0o600)
    yield "--ldap-bind", READER, "--ldap-password-file", "/root/reader"
    kdc.run(modify_directory, input=READER_GONE.encode())
    kdc.path("/root/reader").unlink()


def test_a_reader_who_sees_no_keys_is_enough(doctor: Doctor, reader: tuple[str, ...]) -> None:
    found = doctor("--ldap", "ldapi:///", "--ldap-base", "dc=realm,dc=test", *reader, host="kdc", user="root")
    assert found[f"directory-list {PRINCIPAL}"]["state"] == "ok"
    assert found[f"directory-flags {PRINCIPAL}"]["state"] == "ok"


def test_a_wrong_password_is_said_and_not_shown(doctor: Doctor, reader: tuple[str, ...]) -> None:
    doctor.realm.host("kdc").write("/root/reader", "something-else", mode=0o600)
    found = doctor("--ldap", "ldapi:///", *reader, host="kdc", user="root")
    assert found["directory ldapi:///"]["state"] == "not checked"
    assert "something-else" not in json.dumps(found)
