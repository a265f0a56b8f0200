"""The LDAP server behind the KDC: only it can hold the delegation lists that S4U2Proxy needs."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from realm.host import Host
from realm.service import Runtime, Service, answers
from realm.topology import KRB_REALM

if TYPE_CHECKING:
    from realm.cluster import Realm

SUFFIX = "dc=realm,dc=test"
CONTAINER = f"cn=krbContainer,{SUFFIX}"
URL = "ldapi:///"

SCHEMA = Path("/usr/share/doc/krb5-kdc-ldap/kerberos.openldap.ldif.gz")
_CONFIG = "/etc/ldap/realm.d"
_DATABASE = "/var/lib/ldap"
_RUN = "/run/slapd"
# Who connects over the socket as root is the manager (slapd.access(5), SASL EXTERNAL); nobody else is anything.
_ROOT = "gidNumber=0+uidNumber=0,cn=peercred,cn=external,cn=auth"
_ACCESS = f'to * by dn.exact="{_ROOT}" manage by * none'

_LDIF = f"""\
dn: cn=config
objectClass: olcGlobal
cn: config
olcPidFile: {_RUN}/slapd.pid
olcThreads: 4

dn: cn=module,cn=config
objectClass: olcModuleList
cn: module
olcModulePath: /usr/lib/ldap
olcModuleLoad: back_mdb

dn: cn=schema,cn=config
objectClass: olcSchemaConfig
cn: schema

include: file:///etc/ldap/schema/core.ldif

include: file:///etc/ldap/schema/kerberos.ldif

dn: olcDatabase=config,cn=config
objectClass: olcDatabaseConfig
olcDatabase: config
olcAccess: {_ACCESS}

dn: olcDatabase=mdb,cn=config
objectClass: olcDatabaseConfig
objectClass: olcMdbConfig
olcDatabase: mdb
olcSuffix: {SUFFIX}
olcDbDirectory: {_DATABASE}
olcDbMaxSize: 67108864
olcDbIndex: objectClass eq
olcDbIndex: krbPrincipalName eq,sub
olcAccess: {_ACCESS}
"""
_BASE = f"""\
dn: {SUFFIX}
objectClass: organization
objectClass: dcObject
o: Pocket realm
dc: realm
"""

SLAPD = Service(
    name="slapd",
    host="kdc",
    argv=("/usr/sbin/slapd", "-d", "0", "-u", "openldap", "-g", "openldap", "-F", _CONFIG, "-h", URL),
    ready=answers("/usr/bin/ldapwhoami", "-Q", "-Y", "EXTERNAL", "-H", URL, expect="cn=external,cn=auth"),
    runtime=(Runtime(_RUN, "openldap"),),
)


def start(realm: Realm) -> None:
    """Load the configuration and the Kerberos schema, start slapd, and make the empty suffix."""
    host = realm.host("kdc")
    for path in (_CONFIG, _DATABASE):
        host.mkdir(path, mode=0o700, owner="openldap")
    host.write("/etc/ldap/schema/kerberos.ldif", gzip.decompress(SCHEMA.read_bytes()))
    host.run(["/usr/sbin/slapadd", "-n", "0", "-F", _CONFIG], user="openldap", input=_LDIF.encode(), cwd="/")
    realm.start_service(SLAPD)
    host.run(["/usr/bin/ldapadd", "-Q", "-Y", "EXTERNAL", "-H", URL], input=_BASE.encode())


def set_delegation_targets(host: Host, principal: str, targets: Sequence[str]) -> None:
    """Make `targets` the whole list of services to which `principal` may take a user's ticket (empty: none).

    Both are principals with or without realm; krbAllowedToDelegateTo is compared literally, so the realm is added.
    Raises RealmError.
    """
    values = [f"krbAllowedToDelegateTo: {_full(target)}\n" for target in targets]
    name = f"krbPrincipalName={_full(principal)},cn={KRB_REALM},{CONTAINER}"
    # "replace" without values removes the attribute whether it exists or not (RFC 4511 4.6).
    ldif = f"dn: {name}\nchangetype: modify\nreplace: krbAllowedToDelegateTo\n{''.join(values)}"
    host.run(["/usr/bin/ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", URL], input=ldif.encode())


def _full(principal: str) -> str:
    return principal if "@" in principal else f"{principal}@{KRB_REALM}"
