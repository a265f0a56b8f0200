"""A person's own kinit on the login node and a CI run of theirs do not get in each other's way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from realm import Realm
from realm.bridgehost import ci_bridge
from tests.e2e.on_nodes import there
from tests.e2e.person import WAIT_FOR_GO, Person
from tests.e2e.site_policy import cluster_with, logged_in

OWN = "/tmp/krb5cc_20001"
CI = "/tmp/krb5cc_ci_20001"
TGT = "krbtgt/REALM.TEST@REALM.TEST"


def _klist(realm: Realm, path: str) -> str:
    return realm.host("login").run(["klist", "-c", path], user="alice", check=False).stdout.decode()


def _is_usable(realm: Realm) -> bool:
    """Whether alice's login on the login node still gets her tickets."""
    return realm.host("login").run(["kvno", "host/login.realm.test"], user="alice", check=False).returncode == 0


@pytest.fixture
def login(realm: Realm) -> Iterator[None]:
    with logged_in(realm, "alice", "login"):
        yield


@pytest.fixture
def one_path(realm: Realm) -> Iterator[None]:
    """A cluster with Lustre up to 2.15, which looks at one path only."""
    with cluster_with(realm, login_ccache="FILE:/tmp/krb5cc_%{uid}"):
        yield


@pytest.mark.threat("T23")
@pytest.mark.sends_wrong_tickets
@pytest.mark.usefixtures("login")
def test_a_run_has_tickets_beside_the_persons_own_and_takes_only_its_own_away(realm: Realm, alice: Person) -> None:
    before = _klist(realm, OWN)
    assert TGT in before
    job = alice.push(WAIT_FOR_GO, after_script=["klist"])
    alice.waits(job)
    ours = _klist(realm, CI)
    assert "lustre_mds/mds1.realm.test" in ours
    assert "krbtgt" not in ours
    alice.go(job)
    assert alice.finished(job).status == "success"
    assert f"Ticket cache: FILE:{CI}" in alice.log(job), "stages on the login node are not told of their tickets"
    assert not there(realm, "login", CI)
    assert _klist(realm, OWN) == before
    assert _is_usable(realm)


@pytest.mark.threat("T23")
@pytest.mark.sends_wrong_tickets
@pytest.mark.usefixtures("login", "one_path")
def test_where_there_is_one_path_the_persons_own_login_stays_and_serves(realm: Realm, alice: Person) -> None:
    before = _klist(realm, OWN)
    job = alice.push("true", after_script=["klist", "kvno lustre_mds/mds1.realm.test"])
    assert alice.finished(job).status == "success"
    log = alice.log(job)
    assert "Your own login on login.realm.test stays and serves" in log
    assert f"{TGT}" in log
    (tgt,) = [line for line in before.splitlines() if TGT in line]
    assert tgt in _klist(realm, OWN)
    assert _is_usable(realm)
    records = json.loads(ci_bridge(realm, "audit", "timeline", "--job", str(job.id), "--json"))
    assert [one["detail"]["login_node"] for one in records if "own_login_until" in one["detail"]] == [
        "login.realm.test"
    ]
    (end,) = [one for one in records if one["type"] == "run" and one["detail"].get("state") == "ended"]
    assert end["detail"]["login_left"] is True


@pytest.mark.usefixtures("one_path")
def test_without_a_login_the_one_path_has_the_runs_tickets_until_its_end(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    assert "lustre_mds/mds1.realm.test" in _klist(realm, OWN)
    alice.go(job)
    assert alice.finished(job).status == "success"
    assert not there(realm, "login", OWN)
