"""The KDC gives the bridge what its list says, for ordinary people only; clients find it without DNS."""

import gssapi
import pytest

from realm import Realm, RealmError
from realm.host import Host
from realm.principals import BRIDGE, BRIDGE_KEYTAB, DELEGATION_TARGETS, HTTP_KEYTAB, KEYTABS, LUSTRE_KEYTAB, MDS, Keytab

_LOGIN = "host/login.realm.test"
_BROKER = "ci-bridge-broker"


def _impersonate(bridge: Host, user: str, target: str) -> tuple[int, str]:
    """S4U2Self and S4U2Proxy as the bridge; the code of kvno and what it said."""
    tgt, out = "FILE:/tmp/bridge-tgt", "FILE:/tmp/proxied"
    bridge.path("/tmp/proxied").unlink(missing_ok=True)
    bridge.run(["kinit", "-k", "-t", BRIDGE_KEYTAB, "-c", tgt, BRIDGE], user=_BROKER)
    argv = ["kvno", "-c", tgt, "-k", BRIDGE_KEYTAB, "-I", user, "-P", "--out-cache", out, target]
    done = bridge.run(argv, user=_BROKER, check=False)
    return done.returncode, done.stderr.decode()


def _logged_since(realm: Realm, mark: int) -> str:
    return realm.log("krb5kdc")[mark:]


@pytest.mark.parametrize("target", DELEGATION_TARGETS)
@pytest.mark.parametrize("user", ["alice", "bob", "mallory"])
def test_bridge_gets_a_listed_service_ticket_for_an_ordinary_person(realm: Realm, user: str, target: str) -> None:
    bridge, mark = realm.host("bridge"), len(realm.log("krb5kdc"))
    assert _impersonate(bridge, user, target) == (0, "")
    listed = bridge.run(["klist", "-f", "-c", "FILE:/tmp/proxied"], user=_BROKER).stdout.decode()
    assert f"Default principal: {user}@REALM.TEST" in listed
    assert target in listed
    assert "krbtgt" not in listed
    assert "renew until" not in listed
    log = _logged_since(realm, mark)
    assert f"PROTOCOL-TRANSITION s4u-client={user}@REALM.TEST" in log
    assert f"CONSTRAINED-DELEGATION s4u-client={user}@REALM.TEST" in log


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    "user",
    ["root", "admin/admin", "lustre_root", "kadmin/admin", "kadmin/changepw", "HTTP/bridge.realm.test", _LOGIN, *MDS],
)
def test_kdc_never_lets_the_bridge_act_for_a_protected_principal(realm: Realm, user: str) -> None:
    mark = len(realm.log("krb5kdc"))
    code, _ = _impersonate(realm.host("bridge"), user, _LOGIN)
    assert code == 1
    assert "EVIDENCE_TKT_NOT_FORWARDABLE" in _logged_since(realm, mark)


def test_locked_principal_is_refused(realm: Realm) -> None:
    code, said = _impersonate(realm.host("bridge"), "carol", _LOGIN)
    assert (code, "credentials have been revoked" in said) == (1, True)


@pytest.mark.parametrize("target", ["host/node1.realm.test", "HTTP/bridge.realm.test", "lustre_root"])
def test_target_that_is_not_listed_is_refused(realm: Realm, target: str) -> None:
    code, said = _impersonate(realm.host("bridge"), "alice", target)
    assert (code, "constrained delegation failed" in said) == (1, True)


def test_delegation_list_can_be_emptied_and_restored(realm: Realm) -> None:
    try:
        realm.kdc.set_delegation_targets(BRIDGE, [])
        assert _impersonate(realm.host("bridge"), "alice", _LOGIN)[0] == 1
        realm.kdc.set_delegation_targets(BRIDGE, [_LOGIN])
        assert _impersonate(realm.host("bridge"), "alice", _LOGIN)[0] == 0
        assert _impersonate(realm.host("bridge"), "alice", MDS[0])[0] == 1
    finally:
        realm.kdc.set_delegation_targets(BRIDGE, DELEGATION_TARGETS)


def test_bridge_ticket_is_never_renewable_and_aes(realm: Realm) -> None:
    bridge = realm.host("bridge")
    bridge.run(["kinit", "-r", "1d", "-k", "-t", BRIDGE_KEYTAB, "-c", "FILE:/tmp/renew", BRIDGE], user=_BROKER)
    listed = bridge.run(["klist", "-e", "-f", "-c", "FILE:/tmp/renew"], user=_BROKER).stdout.decode()
    assert "renew until" not in listed
    assert "aes256-cts-hmac-sha1-96, aes256-cts-hmac-sha1-96" in listed


def test_principal_verbs_change_the_kdc(realm: Realm) -> None:
    kdc, desk = realm.kdc, realm.host("desk")
    kdc.addprinc("temporary", "-allow_forwardable")
    try:
        assert "DISALLOW_FORWARDABLE" in kdc.kadmin("getprinc temporary")
        kdc.modprinc("temporary", "+allow_forwardable", "-maxlife 5min")
        assert "Maximum ticket life: 0 days 00:05:00" in kdc.kadmin("getprinc temporary")
        kdc.ktadd(["temporary"], desk, "/tmp/temporary.keytab", owner="bob", rotate=True)
        desk.run(["kinit", "-k", "-t", "/tmp/temporary.keytab", "-c", "MEMORY:", "temporary"], user="bob")
    finally:
        kdc.delprinc("temporary")
    with pytest.raises(RealmError) as caught:
        kdc.kadmin("getprinc temporary")
    assert caught.value.code == "realm.kadmin"


@pytest.mark.parametrize("keytab", KEYTABS, ids=lambda keytab: f"{keytab.host}:{keytab.path}")
def test_keytab_is_its_owners_only_and_works(realm: Realm, keytab: Keytab) -> None:
    host = realm.host(keytab.host)
    shown = host.run(["stat", "-c", "%U %a", keytab.path]).stdout.decode().split()
    assert shown == [keytab.owner, "600"]
    owner = None if keytab.owner == "root" else keytab.owner
    host.run(["kinit", "-k", "-t", keytab.path, "-c", "MEMORY:", keytab.principal], user=owner)


@pytest.mark.parametrize("path", [BRIDGE_KEYTAB, HTTP_KEYTAB, "/etc/krb5.keytab"])
def test_web_process_cannot_read_keytabs(realm: Realm, path: str) -> None:
    refused = realm.host("bridge").run(["cat", path], user="ci-bridge", check=False)
    assert b"Permission denied" in refused.stderr


def test_lustre_keytab_is_on_its_own_host_only(realm: Realm) -> None:
    holders = [name for name, host in realm.hosts.items() if host.path(LUSTRE_KEYTAB).exists()]
    assert holders == ["mds1"]


def test_people_get_their_own_tickets_and_nobody_elses(realm: Realm) -> None:
    desk = realm.host("desk")
    for name in ("alice", "bob", "mallory"):
        desk.run(["kinit", "-k", "-t", realm.user_keytab(name), "-c", "MEMORY:", name], user=name)
    locked = desk.run(
        ["kinit", "-k", "-t", realm.user_keytab("carol"), "-c", "MEMORY:", "carol"], user="carol", check=False
    )
    assert b"credentials have been revoked" in locked.stderr
    stolen = desk.run(["cat", realm.user_keytab("alice")], user="mallory", check=False)
    assert b"Permission denied" in stolen.stderr


def test_kadmin_works_over_the_network_for_the_admin_only(realm: Realm) -> None:
    desk = realm.host("desk")
    refused = desk.run(
        ["kadmin", "-k", "-t", realm.user_keytab("alice"), "-p", "alice", "-q", "getprinc bob"], check=False
    )
    assert b"Operation requires" in refused.stderr


def test_kdc_outage_can_be_made_and_ended(realm: Realm) -> None:
    desk = realm.host("desk")
    kinit = ["kinit", "-k", "-t", realm.user_keytab("alice"), "-c", "MEMORY:", "alice"]
    realm.stop_service("krb5kdc")
    try:
        down = desk.run(kinit, user="alice", check=False)
        assert b"Cannot contact any KDC" in down.stderr
    finally:
        realm.restart_service("krb5kdc")
    desk.run(kinit, user="alice")


def test_process_outside_gets_a_ticket_inside_a_hosts_network(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = realm.host("desk")
    monkeypatch.setenv("KRB5_CONFIG", str(realm.krb5_conf))
    store: dict[bytes | str, bytes | str] = {
        "client_keytab": str(desk.path(realm.user_keytab("alice"))),
        "ccache": "MEMORY:outside",
    }
    name = gssapi.Name("alice@REALM.TEST", gssapi.NameType.kerberos_principal)
    with desk.network():
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        assert credentials.lifetime > 0
