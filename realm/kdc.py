"""The KDC: MIT krb5kdc and kadmind over LDAP, the realm's principals, and the verbs that tests change it with."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from realm import directory
from realm.errors import RealmError
from realm.etc import krb5_conf
from realm.host import Host
from realm.people import PEOPLE
from realm.plan import Step
from realm.principals import BRIDGE, DELEGATION_TARGETS, KEYTABS, PRINCIPALS, PROTECTED_BUILT_INS
from realm.service import Service, answers
from realm.topology import KRB_REALM, spec

if TYPE_CHECKING:
    from realm.cluster import Realm

BINARIES = (
    "/usr/sbin/slapd",
    "/usr/sbin/slapadd",
    "/usr/bin/ldapmodify",
    "/usr/sbin/krb5kdc",
    "/usr/sbin/kadmind",
    "/usr/sbin/kadmin.local",
    "/usr/sbin/kdb5_ldap_util",
    str(directory.SCHEMA),
)
_LOG = "/var/log/krb5kdc.log"
_KADMIND_LOG = "/var/log/kadmind.log"
_ADMIN_KEYTAB = "/var/lib/realm/admin.keytab"
_ADDRESS = spec("kdc").address

# Only on the KDC host: how the daemons reach the database; clients' krb5.conf has none of it.
_DATABASE = f"""
[dbmodules]
    LDAP = {{
        db_library = kldap
        ldap_kerberos_container_dn = {directory.CONTAINER}
        ldap_servers = {directory.URL}
        ldap_kdc_sasl_mech = EXTERNAL
        ldap_kadmind_sasl_mech = EXTERNAL
        ldap_conns_per_server = 5
        disable_last_success = true
        disable_lockout = true
    }}

[logging]
    kdc = FILE:{_LOG}
    admin_server = FILE:{_KADMIND_LOG}
"""
_KDC_CONF = f"""\
[realms]
    {KRB_REALM} = {{
        database_module = LDAP
        key_stash_file = /etc/krb5kdc/stash
        acl_file = /etc/krb5kdc/kadm5.acl
        admin_keytab = FILE:/etc/krb5kdc/kadm5.keytab
        kdc_listen = {_ADDRESS}:88
        kdc_tcp_listen = {_ADDRESS}:88
        kadmind_listen = {_ADDRESS}:749
        kpasswd_listen = {_ADDRESS}:464
        master_key_type = aes256-cts-hmac-sha1-96
        supported_enctypes = aes256-cts:normal aes128-cts:normal
        max_life = 10h
        max_renewable_life = 7d
        default_principal_flags = +preauth
    }}
"""

KRB5KDC = Service(
    name="krb5kdc",
    host="kdc",
    argv=("/usr/sbin/krb5kdc", "-n"),
    ready=answers("/usr/bin/kinit", "-c", "MEMORY:ready", "-k", "host/kdc.realm.test"),
    tcp=(88,),
    udp=(88,),
    log=_LOG,
    depends=("slapd",),
)
KADMIND = Service(
    name="kadmind",
    host="kdc",
    argv=("/usr/sbin/kadmind", "-nofork"),
    ready=answers(
        "/usr/bin/kadmin", "-k", "-t", _ADMIN_KEYTAB, "-p", "admin/admin", "-q", "getprivs", expect="INQUIRE"
    ),
    tcp=(749, 464),
    udp=(464,),
    log=_KADMIND_LOG,
    depends=("krb5kdc",),
)


@dataclass(frozen=True)
class Kdc:
    """The verbs of a realm's KDC; each runs kadmin.local or ldapmodify on host `kdc` and raises RealmError."""

    host: Host

    def kadmin(self, *queries: str) -> str:
        """Run kadmin.local queries in one process and return its output. Raises RealmError `realm.kadmin`."""
        script = "".join(f"{query}\n" for query in queries).encode()
        done = self.host.run(["/usr/sbin/kadmin.local", "-r", KRB_REALM], input=script)
        # kadmin.local ends with 0 whatever its queries did; failures are the lines "verb: message" on stderr.
        wrong = [line for line in done.stderr.decode().splitlines() if _is_failure(line)]
        if wrong:
            raise RealmError(
                "realm.kadmin", wrong[0], remedy="See kadmin.local(8) for the query.", evidence="\n".join(wrong)
            )
        return done.stdout.decode()

    def addprinc(self, principal: str, *flags: str) -> None:
        """Add a principal with random keys and flags such as "-allow_forwardable"."""
        self.kadmin(f"addprinc -randkey {' '.join(flags)} {principal}")

    def modprinc(self, principal: str, *flags: str) -> None:
        """Change flags or lives of a principal, such as "+allow_tix" or "-maxlife 5min"."""
        self.kadmin(f"modprinc {' '.join(flags)} {principal}")

    def delprinc(self, principal: str) -> None:
        """Remove a principal."""
        self.kadmin(f"delprinc -force {principal}")

    def ktadd(
        self, principals: Iterable[str], host: Host, path: str, *, owner: str = "root", rotate: bool = False
    ) -> None:
        """Write a keytab with the keys of `principals` to `path` of `host`, 0600; `rotate` makes new keys first."""
        draft = f"/var/lib/realm/{secrets.token_hex(8)}.keytab"
        keep = "" if rotate else "-norandkey"
        self.kadmin(*(f"ktadd -k {draft} {keep} {principal}" for principal in principals))
        host.write(path, self.host.read(draft), mode=0o600, owner=owner)
        self.host.path(draft).unlink()

    def set_delegation_targets(self, principal: str, targets: Sequence[str]) -> None:
        """Make `targets` all that `principal` may reach by S4U2Proxy."""
        directory.set_delegation_targets(self.host, principal, targets)


def user_keytab(name: str) -> str:
    """Where host `desk` keeps the keytab of a person."""
    return f"/var/lib/realm/keytabs/{name}.keytab"


def _is_failure(line: str) -> bool:
    return ": " in line and not line.startswith(("WARNING:", "No policy specified", "Authenticating as"))


def _create(realm: Realm) -> None:
    host = realm.host("kdc")
    host.mkdir("/var/lib/realm", mode=0o700)
    host.write("/etc/krb5.conf", krb5_conf() + _DATABASE)
    host.write("/etc/krb5kdc/kdc.conf", _KDC_CONF)
    host.write("/etc/krb5kdc/kadm5.acl", f"admin/admin@{KRB_REALM} *\n", mode=0o600)
    # The master password is never needed again: the stash file has the key.
    create = [
        "/usr/sbin/kdb5_ldap_util",
        "-H",
        directory.URL,
        "create",
        "-r",
        KRB_REALM,
        "-s",
        "-subtrees",
        directory.SUFFIX,
    ]
    password = secrets.token_urlsafe(24)
    host.run([*create, "-sscope", "SUB", "-k", "aes256-cts"], input=f"{password}\n{password}\n".encode())


def _populate(realm: Realm) -> None:
    kdc = realm.kdc
    queries = [f"addprinc -randkey {' '.join(entry.flags)} {entry.name}" for entry in PRINCIPALS]
    queries += [f"modprinc -allow_forwardable {name}" for name in PROTECTED_BUILT_INS]
    queries.append(f"ktadd -k {_ADMIN_KEYTAB} -norandkey admin/admin")
    kdc.kadmin(*queries)
    kdc.set_delegation_targets(BRIDGE, DELEGATION_TARGETS)


def _hand_out(realm: Realm) -> None:
    kdc = realm.kdc
    wanted = [keytab for keytab in KEYTABS if keytab.host in realm.hosts]
    drafts = [f"/var/lib/realm/{number}.keytab" for number in range(len(wanted))]
    pairs = zip(drafts, wanted, strict=True)
    kdc.kadmin(*(f"ktadd -k {draft} -norandkey {keytab.principal}" for draft, keytab in pairs))
    for draft, keytab in zip(drafts, wanted, strict=True):
        realm.host(keytab.host).write(keytab.path, kdc.host.read(draft), mode=0o600, owner=keytab.owner)
        kdc.host.path(draft).unlink()
    if "desk" in realm.hosts:
        _hand_out_people(realm)


def _hand_out_people(realm: Realm) -> None:
    for user in PEOPLE:
        realm.kdc.ktadd([user.name], realm.host("desk"), user_keytab(user.name), owner=user.name)


STEPS: tuple[Step, ...] = (
    Step("kdc.directory", directory.start, ("dress",)),
    Step("kdc.create", _create, ("kdc.directory",)),
    Step("kdc.populate", _populate, ("kdc.create",)),
    Step("kdc.keytabs", _hand_out, ("kdc.populate",)),
    Step("kdc.krb5kdc", lambda realm: realm.start_service(KRB5KDC), ("kdc.keytabs",)),
    Step("kdc.kadmind", lambda realm: realm.start_service(KADMIND), ("kdc.krb5kdc",)),
)
