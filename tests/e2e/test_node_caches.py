"""Tickets on compute nodes that are in no file: in the kernel's keyring, and with sssd's KCM daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from realm import Realm
from realm.host import kill_session
from tests.e2e.on_nodes import ACCEPT, ON_NODE1, age, deliveries, refresh, there, until
from tests.e2e.person import WAIT_FOR_GO, Person
from tests.e2e.site_policy import cluster_with, logged_in, node_with
from tests.keyrings import own_keyring

UID = 20001
KCM = ("/usr/libexec/sssd/sssd_kcm", "--uid", "0", "--gid", "0", "--logger=stderr")
KCM_SOCKET = "/run/.heim_org.h5l.kcm-socket"

TOKEN = """
import base64, gssapi, sys
name = gssapi.Name("lustre_mds/mds1.realm.test@REALM.TEST", gssapi.NameType.kerberos_principal)
print("token", base64.b64encode(gssapi.SecurityContext(name=name, usage="initiate").step()).decode())
"""
"""By the default credentials, as the tools of a job have them."""

pytestmark = pytest.mark.usefixtures("node1_only")


@dataclass(frozen=True)
class Form:
    """A form of cache, and what the person's tools know it by."""

    policy: str
    name: str
    """KRB5CCNAME, or default_ccache_name of the node."""


KEYRING = Form("KEYRING:persistent:%{uid}", f"KEYRING:persistent:{UID}")
DAEMON = Form("KCM:%{uid}", "KCM:")


@contextmanager
def _kcm(realm: Realm) -> Iterator[None]:
    """Run sssd_kcm on node1, as its socket-activated unit does."""
    node1 = realm.host("node1")
    for path in ("/var/lib/sss/db", "/var/lib/sss/secrets", "/var/log/sssd"):
        node1.run(["mkdir", "-p", path])
    process = node1.popen(KCM, stdout=None, stderr=None)
    try:
        until(lambda: there(realm, "node1", KCM_SOCKET), "sssd_kcm does not come up")
        yield
    finally:
        kill_session(process)
        process.wait(10)
        node1.run(["rm", "-rf", "/var/lib/sss", KCM_SOCKET])


@pytest.fixture(params=[KEYRING, DAEMON], ids=["keyring", "kcm"])
def form(request: pytest.FixtureRequest, realm: Realm) -> Iterator[Form]:
    """A cluster whose nodes keep tickets so."""
    form: Form = request.param
    with (
        own_keyring(UID) if form is KEYRING else _kcm(realm),
        cluster_with(realm, node_ccache=form.policy),
        node_with(realm, "node1", f'cache_collections = ["{form.policy}"]'),
    ):
        yield form


def _klist(realm: Realm, form: Form, user: str = "alice") -> str:
    """What a session of the user's on node1, other than the job's, finds there."""
    return (
        realm.host("node1").run(["klist", "-A"], user=user, env={"KRB5CCNAME": form.name}, check=False).stdout.decode()
    )


@pytest.mark.threat("T23")
@pytest.mark.threat("T20")
def test_a_job_and_its_users_other_sessions_find_the_tickets_and_the_epilog_takes_them(
    realm: Realm, alice: Person, form: Form
) -> None:
    job = alice.push("klist", f"/usr/bin/python3 -c '{TOKEN}'", WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    log = alice.log(job)
    assert f"Ticket cache: {form.policy.replace('%{uid}', str(UID))}:ci_bridge_" in log
    assert "lustre_mds/mds2.realm.test@REALM.TEST" in log
    assert "krbtgt" not in log
    token = next(line for line in log.splitlines() if line.startswith("token ")).split()[1]
    accepted = realm.host("mds1").run(["/usr/bin/python3", "-c", ACCEPT], input=token.encode()).stdout
    assert accepted.decode().strip() == "alice@REALM.TEST"

    before = _klist(realm, form)
    assert "lustre_mds/mds1.realm.test@REALM.TEST" in before
    assert "lustre_mds" not in _klist(realm, form, "bob")
    age(realm, alice.slurm_id(job))
    assert "renewed in" in refresh(realm)
    after = _klist(realm, form)
    assert after.count("Ticket cache") == 1
    assert after.splitlines()[0] != before.splitlines()[0]

    alice.go(job)
    assert alice.finished(job).status == "success"
    until(lambda: _klist(realm, form) == "", "the tickets stayed")
    until(lambda: len(deliveries(realm, job.id)) == 5, "the bridge was not told")
    assert deliveries(realm, job.id)[-1] == ("event", "node1.realm.test", True)


@pytest.mark.threat("T23")
def test_a_login_of_the_persons_on_the_node_outlives_the_job(realm: Realm, alice: Person, form: Form) -> None:
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    alice.waits(job)
    with logged_in(realm, "alice", "node1", form.name):
        alice.go(job)
        assert alice.finished(job).status == "success"
        until(lambda: len(deliveries(realm, job.id)) == 3, "the epilog did not come")
        assert "krbtgt/REALM.TEST@REALM.TEST" in _klist(realm, form)
        used = ["kvno", "lustre_mds/mds1.realm.test@REALM.TEST"]
        realm.host("node1").run(used, user="alice", env={"KRB5CCNAME": form.name})
