"""What tests of tickets on compute nodes look at there."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from realm import Realm
from realm.bridgehost import ci_bridge
from realm.principals import LUSTRE_KEYTAB, MDS

AGENT = "/usr/lib/ci-bridge/ci-bridge-node"
CONFIG = "/etc/ci-bridge/node.toml"
CACHE = "/tmp/krb5cc_20001"
STATE = "/var/lib/ci-bridge-node/20001"
ON_NODE1 = {"SCHEDULER_PARAMETERS": "--partition=ci --nodes=1 --time=5"}
"""Where `node1_only` sees to it."""
ON_BOTH = {"SCHEDULER_PARAMETERS": "--partition=ci --nodes=2 --ntasks=2 --time=5"}

INITIATE = f"""
import base64, os, shutil, tempfile, gssapi
name = gssapi.Name("{MDS[0]}@REALM.TEST", gssapi.NameType.kerberos_principal)
with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as directory:
    copy = shutil.copy("{CACHE}", directory)
    credentials = gssapi.Credentials(usage="initiate", store={{"ccache": f"FILE:{{copy}}"}})
    context = gssapi.SecurityContext(name=name, creds=credentials, usage="initiate")
    print(base64.b64encode(context.step()).decode())
"""
"""By a copy, since GSSAPI writes into a cache that ends soon when to look for a new one (acquire_cred.c)."""
ACCEPT = f"""
import base64, gssapi, sys
credentials = gssapi.Credentials(usage="accept", store={{"keytab": "{LUSTRE_KEYTAB}", "rcache": "none:"}})
context = gssapi.SecurityContext(creds=credentials, usage="accept")
context.step(base64.b64decode(sys.stdin.read()))
print(context.initiator_name)
"""
ASK = """
import sys
sys.path.append("/usr/lib/ci-bridge")
from runner.node import asking
from runner.node.settings import Settings
try:
    asking.fetch(Settings(sys.argv[1]), sys.argv[2], int(sys.argv[3]), once=True)
    print("got tickets")
except (asking.Refused, asking.Failed) as error:
    print(error)
"""


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def there(realm: Realm, node: str, path: str = CACHE) -> bool:
    return os.path.lexists(realm.host(node).path(os.path.dirname(path)) / os.path.basename(path))  # noqa: PTH119, PTH120


def principal_of(realm: Realm, node: str) -> str:
    """As whom a service on another host lets in whoever uses alice's cache on the node."""
    token = realm.host(node).run(["/usr/bin/python3", "-c", INITIATE], user="alice").stdout
    return realm.host("mds1").run(["/usr/bin/python3", "-c", ACCEPT], input=token).stdout.decode().strip()


def refresh(realm: Realm, node: str = "node1") -> str:
    return realm.host(node).run([AGENT, "refresh"]).stderr.decode()


def ask(realm: Realm, node: str, slurm_id: str, uid: int = 20001, config: str = CONFIG) -> str:
    argv = ["/usr/bin/python3", "-c", ASK, config, slurm_id, str(uid)]
    return realm.host(node).run(argv).stdout.decode().strip()


def deliveries(realm: Realm, job_id: int) -> list[tuple[str, str, bool]]:
    """What is on record of tickets on nodes: phase, node, and whether it says that they were removed."""
    records = json.loads(ci_bridge(realm, "audit", "timeline", "--job", str(job_id), "--json"))
    found = [one for one in records if one["type"] == "tickets" and one["detail"].get("use") == "node"]
    return [(one["phase"], one["target"]["node"], one["detail"].get("removed", False)) for one in found]


def age(realm: Realm, slurm_id: str) -> None:
    """Have the node believe that the job's tickets end in a minute."""
    path = f"{STATE}/{slurm_id}"
    marker = json.loads(realm.host("node1").read(path))
    marker |= {"got": time.time() - 600, "end": time.time() + 60}
    realm.host("node1").write(path, json.dumps(marker), mode=0o600)
