"""The /etc of each host: who it is, who is known, where the others are, and how Kerberos is found."""

from __future__ import annotations

from realm import people
from realm.host import Host
from realm.topology import DOMAIN, HOSTS, KRB_REALM, spec

ENCTYPES = "aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96"

_NSSWITCH = """\
passwd: files
group: files
shadow: files
gshadow: files
hosts: files
services: files
protocols: files
ethers: files
rpc: files
netgroup: files
"""


def dress(host: Host) -> None:
    """Write the host's own /etc files and make the homes of its users; nothing of the machine's /etc changes."""
    added = people.users(host.name, has_people=host.spec.has_people)
    host.write("/etc/hostname", f"{host.fqdn}\n")
    host.write("/etc/hosts", hosts_file())
    host.write("/etc/resolv.conf", "")
    host.write("/etc/nsswitch.conf", _NSSWITCH)
    host.write("/etc/passwd", people.passwd(added))
    host.write("/etc/group", people.group(added))
    host.write("/etc/shadow", people.shadow(added), mode=0o600)
    host.write("/etc/krb5.conf", krb5_conf())
    host.write("/etc/realm/krb5.conf", krb5_conf())
    host.path("/etc/krb5.keytab").unlink(missing_ok=True)
    host.mkdir("/var/log/realm")
    for user in added:
        if not host.path(user.home).is_dir():
            host.mkdir(user.home, mode=0o700, owner=user.name)


def hosts_file() -> str:
    """hosts(5): the full name first, because GSSAPI takes the first for the canonical one."""
    lines = ["127.0.0.1 localhost"] + [f"{host.address} {host.fqdn} {host.name}" for host in HOSTS]
    return "\n".join(lines) + "\n"


def krb5_conf() -> str:
    """krb5.conf(5) for clients: no DNS, no canonicalisation, AES only, and the KDC by address over TCP."""
    kdc = spec("kdc").address
    return f"""\
[libdefaults]
    default_realm = {KRB_REALM}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    dns_uri_lookup = false
    rdns = false
    forwardable = true
    udp_preference_limit = 1
    permitted_enctypes = {ENCTYPES}
    default_ccache_name = FILE:/tmp/krb5cc_%{{uid}}

[realms]
    {KRB_REALM} = {{
        kdc = {kdc}:88
        admin_server = {kdc}:749
    }}

[domain_realm]
    .{DOMAIN} = {KRB_REALM}
    {DOMAIN} = {KRB_REALM}
"""
