"""The principals of the realm, what each may do, and which host keeps whose keytab; data only."""

from __future__ import annotations

from dataclasses import dataclass

from realm.people import PEOPLE
from realm.topology import HOSTS, spec

BRIDGE = f"ci-bridge/{spec('bridge').fqdn}"
BRIDGE_HTTP = f"HTTP/{spec('bridge').fqdn}"
MDS_HOSTS = ("mds1.realm.test", "mds2.realm.test")
MDS = tuple(f"lustre_mds/{host}" for host in MDS_HOSTS)
DELEGATION_TARGETS = (f"host/{spec('login').fqdn}", *MDS)

BRIDGE_KEYTAB = "/etc/ci-bridge/bridge.keytab"
HTTP_KEYTAB = "/etc/ci-bridge/http.keytab"
LUSTRE_KEYTAB = "/etc/lustre.keytab"

# The KDC gives no forwardable S4U2Self ticket for these, so nobody can take them further (krb5 kdc_util.c).
_NEVER = ("-allow_forwardable",)
PROTECTED_BUILT_INS = ("kadmin/admin", "kadmin/changepw", "kadmin/history")


@dataclass(frozen=True)
class Principal:
    """A principal with random keys and its kadmin flags."""

    name: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keytab:
    """Whose keys lie where, readable by `owner` only."""

    principal: str
    host: str
    path: str
    owner: str = "root"


PRINCIPALS: tuple[Principal, ...] = (
    *(Principal(user.name, ("-allow_tix",) if user.locked else ()) for user in PEOPLE),
    Principal("root", _NEVER),
    Principal("admin/admin", _NEVER),
    Principal("lustre_root", _NEVER),
    *(Principal(f"host/{host.fqdn}", _NEVER) for host in HOSTS),
    *(Principal(name, _NEVER) for name in MDS),
    Principal(BRIDGE_HTTP, _NEVER),
    # Non-renewable, so that no proxied ticket outlives the bridge's own, and that is short by the KDC's word too: no
    # limits of the shipped policies give tickets for longer.
    Principal(BRIDGE, ("+ok_to_auth_as_delegate", "+requires_preauth", "-allow_renewable", "-maxlife 3h")),
)

KEYTABS: tuple[Keytab, ...] = (
    *(Keytab(f"host/{host.fqdn}", host.name, "/etc/krb5.keytab") for host in HOSTS),
    Keytab(BRIDGE, "bridge", BRIDGE_KEYTAB, "ci-bridge-broker"),
    Keytab(BRIDGE_HTTP, "bridge", HTTP_KEYTAB, "ci-bridge-broker"),
    Keytab(MDS[0], "mds1", LUSTRE_KEYTAB),
)
