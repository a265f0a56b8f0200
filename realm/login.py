"""The login node: OpenSSH that takes Kerberos only, and the driver's login agent for whoever comes from the bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from realm.deployed import PREFIX
from realm.host import Host
from realm.plan import Step
from realm.service import Runtime, Service, connects
from realm.topology import spec

if TYPE_CHECKING:
    from realm.cluster import Realm

BINARIES = ("/usr/sbin/sshd", "/usr/bin/ssh")
AGENT = f"{PREFIX}/ci-bridge-login"
_CONFIG = "/etc/ssh/realm_sshd_config"
_HOST_KEY = "/etc/ssh/realm_ed25519_key"

_SSHD = f"""\
Port 22
AddressFamily inet
ListenAddress {spec("login").address}
HostKey {_HOST_KEY}
LogLevel VERBOSE

GSSAPIAuthentication yes
GSSAPIStrictAcceptorCheck yes
GSSAPICleanupCredentials yes
GSSAPIKeyExchange no
AuthenticationMethods gssapi-with-mic
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication no
HostbasedAuthentication no
PermitEmptyPasswords no
PermitRootLogin no
UsePAM no

DisableForwarding yes
PermitUserEnvironment no
PermitUserRC no
X11Forwarding no
PrintMotd no
PrintLastLog no
UseDNS no
# Tests open many connections at once; none of them is refused by chance.
MaxStartups 200:30:400
MaxSessions 100
LoginGraceTime 30

Match Address {spec("bridge").address}
    ForceCommand {AGENT}
    PermitTTY no
"""
_SSH = """\
Host *
    GSSAPIAuthentication yes
    GSSAPIDelegateCredentials no
    PreferredAuthentications gssapi-with-mic
    StrictHostKeyChecking yes
    GlobalKnownHostsFile /etc/ssh/ssh_known_hosts
    HashKnownHosts no
"""

SSHD = Service(
    name="sshd",
    host="login",
    argv=("/usr/sbin/sshd", "-D", "-e", "-f", _CONFIG),
    ready=connects(22, banner=b"SSH-2.0-OpenSSH"),
    tcp=(22,),
    depends=("krb5kdc",),
    runtime=(Runtime("/run/sshd"),),
)


def known_hosts(login: Host) -> str:
    """The known_hosts(5) line for the login node under both its names and its address."""
    kind, key = login.read(f"{_HOST_KEY}.pub").decode().split()[:2]
    return f"{login.fqdn},{login.name},{login.address} {kind} {key}\n"


def _make_host_key(realm: Realm) -> None:
    host, key = realm.host("login"), ed25519.Ed25519PrivateKey.generate()
    form, plain = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    host.write(_HOST_KEY, key.private_bytes(serialization.Encoding.PEM, form, plain), mode=0o600)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    host.write(f"{_HOST_KEY}.pub", public + b"\n")
    for client in realm.hosts.values():
        client.write("/etc/ssh/ssh_known_hosts", known_hosts(host))
        client.write("/etc/ssh/ssh_config", _SSH)


def _start(realm: Realm) -> None:
    host = realm.host("login")
    host.write(_CONFIG, _SSHD, mode=0o600)
    realm.start_service(SSHD)


STEPS: tuple[Step, ...] = (
    Step("login.key", _make_host_key, ("dress",)),
    Step("login.sshd", _start, ("login.key", "kdc.keytabs")),
)
