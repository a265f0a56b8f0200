"""Host `bridge`: broker and web as a site would run them, with the checkout's policies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from realm import forge, tls
from realm.plan import Step
from realm.service import Service, answers
from realm.topology import KRB_REALM, spec
from realm.workspace import CHECKOUT

if TYPE_CHECKING:
    from realm.cluster import Realm

PORT = 8443
URL = f"https://{spec('bridge').fqdn}:{PORT}"
AUDIENCE = f"https://{spec('bridge').fqdn}"
CONFIG = "/etc/ci-bridge/bridge.toml"
POLICIES = "/etc/ci-bridge/policies"
OAUTH_CLIENT = "ci-bridge-of-the-realm"
_OAUTH_SECRET = "/etc/ci-bridge/oauth.secret"  # noqa: S105 - where it lies

_SETTINGS = f"""\
policies = "{POLICIES}"

[[issuers]]
url = "{forge.URL}"
audience = "{AUDIENCE}"
ca_file = "{tls.CA_PATH}"
job_token_evidence = true
oauth_client_id = "{OAUTH_CLIENT}"
oauth_client_secret_file = "{_OAUTH_SECRET}"

[database]
url = "sqlite:////var/lib/ci-bridge/bridge.sqlite3"

[broker]
principal = "ci-bridge/{spec("bridge").fqdn}"
realm = "{KRB_REALM}"
http_service = "HTTP/{spec("bridge").fqdn}"

[web]
host = "{spec("bridge").address}"
port = {PORT}
url = "{URL}"
tls_certificate = "{tls.CERTIFICATE_PATH}"
tls_key = "{tls.KEY_PATH}"
public_hosts = ["{spec("bridge").fqdn}"]
known_hosts = "/etc/ssh/ssh_known_hosts"
job_watch_seconds = 1
"""

COMMAND = (sys.executable, "-P", "-m", "bridge.cli.main")

SERVICE = Service(
    name="bridge",
    host="bridge",
    argv=(*COMMAND, "serve", "--config", CONFIG),
    ready=answers("curl", "--silent", "--fail", "--cacert", tls.CA_PATH, f"{URL}/health/ready", expect="ready"),
    tcp=(PORT,),
    depends=("krb5kdc", "gitlab"),
    stop_seconds=15.0,
)


def ci_bridge(realm: Realm, *arguments: str, check: bool = True, user: str = "ci-bridge") -> str:
    """Run the `ci-bridge` command on the bridge's host, as web's user unless told otherwise; its standard output."""
    argv = [*COMMAND, *arguments, "--config", CONFIG]
    return realm.host("bridge").run(argv, user=user, check=check).stdout.decode()


def _configure(realm: Realm) -> None:
    host = realm.host("bridge")
    host.write(CONFIG, _SETTINGS)
    for path in sorted((CHECKOUT / "policies").rglob("*")):
        if path.is_file():
            host.write(f"{POLICIES}/{path.relative_to(CHECKOUT / 'policies')}", path.read_bytes())


def _register(realm: Realm) -> None:
    """As GitLab's administrator does, who hands the secret to the bridge's."""
    with forge.control(realm) as gitlab:
        made = gitlab.register_application([f"{URL}/link/callback"], client_id=OAUTH_CLIENT)
    realm.host("bridge").write(_OAUTH_SECRET, made.secret, mode=0o600, owner="ci-bridge-broker")


def _start(realm: Realm) -> None:
    realm.start_service(SERVICE)


STEPS: tuple[Step, ...] = (
    Step("bridge.configure", _configure, ("dress",)),
    Step("bridge.register", _register, ("dress", "gitlab.start")),
    Step("bridge.start", _start, ("bridge.configure", "bridge.register", "tls", "kdc.keytabs", "login.key")),
)
