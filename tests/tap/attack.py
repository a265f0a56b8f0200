"""What a thief does with captured tickets: the attack that a stored S4U cache falls to, with MIT's own tools."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from realm import Realm
from realm.host import Host
from realm.principals import BRIDGE, BRIDGE_HTTP, DELEGATION_TARGETS, LUSTRE_KEYTAB, MDS
from realm.topology import KRB_REALM, spec
from tests.tap.kerberos import Sight, as_cache

HOLDER = "mallory"
_CACHE, _CONTROL = "/tmp/loot", "/tmp/loot-control"
_LOGIN, _BRIDGE = DELEGATION_TARGETS[0], f"{BRIDGE}@{KRB_REALM}"


def attacks(cache: str) -> Mapping[str, Sequence[str]]:
    """By name, what a holder of a cache (a path) tries on any machine; each must fail."""
    return {
        "act as bob": ["kvno", "-c", cache, "-U", "bob", _BRIDGE],
        "act as root": ["kvno", "-c", cache, "-U", "root", _BRIDGE],
        "act as bob towards the login node": ["kvno", "-c", cache, "-I", "bob", "-P", _LOGIN],
        "act as alice anew": ["kvno", "-c", cache, "-U", "alice", _BRIDGE],
        "another host": ["kvno", "-c", cache, f"host/{spec('node2').fqdn}"],
        "the bridge's web service": ["kvno", "-c", cache, BRIDGE_HTTP],
        "a TGT": ["kvno", "-c", cache, f"krbtgt/{KRB_REALM}"],
        "change the password": ["kvno", "-c", cache, "kadmin/changepw"],
        "administer the KDC": ["kvno", "-c", cache, "kadmin/admin"],
        "renew": ["kinit", "-c", cache, "-R"],
        "renew the service ticket": ["kinit", "-c", cache, "-R", "-S", _LOGIN],
        "validate": ["kinit", "-c", cache, "-v"],
        "user to user": ["kvno", "-c", cache, "--u2u", cache, "alice"],
    }


_AS_EVIDENCE = f"""
import gssapi, sys
def name(text): return gssapi.Name(text, gssapi.NameType.kerberos_principal)
person = gssapi.Credentials(usage="initiate", store={{"ccache": "FILE:{_CACHE}"}})
there = gssapi.SecurityContext(name=name("{MDS[0]}@{KRB_REALM}"), creds=person, usage="initiate")
keys = {{"keytab": "{LUSTRE_KEYTAB}", "client_keytab": "{LUSTRE_KEYTAB}", "ccache": "MEMORY:", "rcache": "none:"}}
service = gssapi.Credentials(name=name("{MDS[0]}@{KRB_REALM}"), usage="both", store=keys)
here = gssapi.SecurityContext(creds=service, usage="accept")
here.step(there.step())
print("accepted", here.initiator_name, flush=True)
onward = gssapi.SecurityContext(name=name("{_LOGIN}@{KRB_REALM}"), creds=here.delegated_creds, usage="initiate")
onward.step()
print("carried on")
"""
"""A service takes the ticket that is for it for evidence, to go to another as that person (S4U2Proxy)."""


def successes(realm: Realm, loot: Iterable[Sight]) -> list[str]:
    """Try all of it with these entries of one client's caches; what has worked, by name."""
    entries = list(loot)
    desk, data = realm.host("desk"), as_cache(entries)
    _control(realm, desk)
    before = realm.log("krb5kdc").count(": ISSUE: ")
    worked = []
    for name, argv in attacks(_CACHE).items():
        desk.write(_CACHE, data, mode=0o600, owner=HOLDER)
        if desk.run(argv, user=HOLDER, check=False).returncode == 0:
            worked.append(name)
    desk.path(_CACHE).unlink()
    if realm.log("krb5kdc").count(": ISSUE: ") != before:
        worked.append("the KDC has issued a ticket")
    for_it = any(entry.server == f"{MDS[0]}@{KRB_REALM}" and (entry.end or 0) > time.time() for entry in entries)
    return worked + (_as_evidence(realm, data) if for_it else [])


def _control(realm: Realm, desk: Host) -> None:
    """The same tools get tickets where there is a right to them, so a refusal is none of the KDC's being away."""
    keytab = realm.user_keytab(HOLDER)
    desk.run(["kinit", "-c", _CONTROL, "-k", "-t", keytab, HOLDER], user=HOLDER)
    desk.run(["kvno", "-c", _CONTROL, f"host/{spec('node2').fqdn}"], user=HOLDER)
    desk.run(["kdestroy", "-c", _CONTROL], user=HOLDER)


def _as_evidence(realm: Realm, data: bytes) -> list[str]:
    mds = realm.host("mds1")
    mds.write(_CACHE, data, mode=0o600)
    done = mds.run([sys.executable, "-c", _AS_EVIDENCE], check=False)
    mds.path(_CACHE).unlink()
    assert b"accepted" in done.stdout, done.stderr
    return ["a service has carried it on to the login node"] if b"carried on" in done.stdout else []
