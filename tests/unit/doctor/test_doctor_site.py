"""What the realm is compared with: the services that are needed, and the names that the list should not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.doctor.delegation import known_names
from bridge.doctor.exposed import privileged, services
from bridge.doctor.finding import Finding, State
from bridge.doctor.kerberos import Wishes, check_kerberos
from bridge.doctor.remedies import KdcKind, Remedies
from bridge.doctor.site import Site
from bridge.policy.bundle import load_bundle
from bridge.settings import Broker, Settings, parse

CHECKOUT = Path(__file__).resolve().parents[3]
BROKER = Broker(
    principal="ci-bridge/bridge.realm.test",
    realm="REALM.TEST",
    http_service="HTTP/bridge.realm.test",
    denied_users=("batch",),
    uid_floor=5000,
)


def site(kind: KdcKind = KdcKind.MIT) -> Site:
    remedies = Remedies(kind, "ci-bridge/bridge.realm.test@REALM.TEST", "k")
    return Site.of(BROKER, load_bundle(CHECKOUT / "policies"), remedies)


def test_needed_is_the_login_node_and_every_target_once() -> None:
    assert site().needed == (
        "host/login.realm.test@REALM.TEST",
        "lustre_mds/mds1.realm.test@REALM.TEST",
        "lustre_mds/mds2.realm.test@REALM.TEST",
    )


def test_the_longest_life_is_that_of_the_widest_limit() -> None:
    assert site().longest_minutes == 180


@pytest.mark.threat("T22")
@pytest.mark.parametrize(
    "name",
    ["krbtgt/REALM.TEST", "kadmin/changepw", "host/node1.realm.test", "nfs/login.realm.test", "HTTP/mds1.realm.test"],
)
def test_names_that_the_list_should_not_have_are_asked_for(name: str) -> None:
    assert f"{name}@REALM.TEST" in known_names(site())


def test_what_is_needed_is_not_too_many() -> None:
    assert not set(known_names(site())) & set(site().needed)
    assert "ci-bridge/bridge.realm.test@REALM.TEST" not in known_names(site())


@pytest.mark.threat("T18")
def test_privileged_names_denied_users_and_services_are_tried() -> None:
    assert {"root@REALM.TEST", "admin/admin@REALM.TEST", "lustre_root@REALM.TEST", "slurm@REALM.TEST"} <= {
        *privileged(site())
    }
    assert "Administrator@REALM.TEST" in privileged(site(KdcKind.AD))
    assert {"host/node2.realm.test@REALM.TEST", "HTTP/bridge.realm.test@REALM.TEST"} <= {*services(site())}


@pytest.mark.threat("T18")
def test_the_brokers_own_bounds_hold_beside_policys() -> None:
    assert "batch@REALM.TEST" in privileged(site())
    assert site().uid_floor == 5000
    assert {"wheel", "shadow"} <= site().denied_groups


def settings(tmp_path: Path, policies: Path, realm: str = "REALM.TEST") -> Settings:
    broker = BROKER.model_dump(mode="json") | {"keytab": str(tmp_path / "no.keytab"), "realm": realm}
    document = {
        "policies": str(policies),
        "issuers": [{"url": "https://gitlab.realm.test", "audience": "x"}],
        "broker": broker,
        "web": {"public_hosts": ["bridge.realm.test"]},
    }
    return parse(document, tmp_path)


def check(one: Settings) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_kerberos(one, Wishes())}


def test_policies_that_do_not_load_are_one_finding(tmp_path: Path) -> None:
    found = check(settings(tmp_path, tmp_path / "nowhere"))
    assert {name: finding.state for name, finding in found.items()} == {"policies": State.FAILED}


def test_a_keytab_that_is_not_there_is_not_checked(tmp_path: Path) -> None:
    found = check(settings(tmp_path, CHECKOUT / "policies"))
    assert {name: finding.state for name, finding in found.items()} == {"keytab": State.NOT_CHECKED}


def test_a_cluster_of_another_realm_is_named(tmp_path: Path) -> None:
    found = check(settings(tmp_path, CHECKOUT / "policies", realm="ELSEWHERE.TEST"))
    assert found["cluster-realm"].state is State.FAILED
    assert "its realm is REALM.TEST, the bridge's is ELSEWHERE.TEST" in found["cluster-realm"].detail


@pytest.mark.parametrize("state", [one for one in State if one is not State.OK])
def test_what_is_not_well_has_a_remedy(state: State) -> None:
    with pytest.raises(ValueError, match="without a remedy"):
        Finding("a-check", "a subject", state, "a detail")
