"""People link themselves by two proofs, say who may act as them, and stop it; nobody does so for somebody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from realm import Realm
from realm.bridgehost import POLICIES
from realm.errors import RealmError
from realm.gitlab.client import GitLabControl
from tests.e2e.at_desk import AtDesk, confirmation
from tests.e2e.person import WAIT_FOR_GO, Person
from tests.e2e.site_policy import reload
from tests.e2e.test_kill import SOON_SECONDS, seconds_until_ended

GITLAB = "https://gitlab.realm.test"
LINKS = """
[links]
self_service = true
admin = true

[[provider]]
issuer = "https://gitlab.realm.test"
name = "ldapmain"
account = "uid=([a-z]+),ou=people,dc=realm,dc=test"
"""
ROLES = """
[[member]]
principal = "alice@REALM.TEST"
roles = ["author", "approver"]

[[member]]
principal = "bob@REALM.TEST"
roles = ["approver", "operator"]
"""


@contextmanager
def linking_policies(realm: Realm) -> Iterator[None]:
    """Let people and administrators link, and give alice and bob roles, until the end of the block."""
    host = realm.host("bridge")
    accounts, roles = host.read(f"{POLICIES}/accounts.toml").decode(), host.path(f"{POLICIES}/roles.toml")
    shipped = roles.read_bytes() if roles.exists() else b""
    try:
        host.write(f"{POLICIES}/accounts.toml", accounts + LINKS)
        host.write(f"{POLICIES}/roles.toml", ROLES)
        reload(realm)
        yield
    finally:
        host.write(f"{POLICIES}/accounts.toml", accounts)
        host.write(f"{POLICIES}/roles.toml", shipped)
        reload(realm)


@pytest.fixture(scope="module", autouse=True)
def policies(realm: Realm) -> Iterator[None]:
    with linking_policies(realm):
        yield


@pytest.fixture(scope="module", autouse=True)
def slurm_account(realm: Realm) -> Iterator[None]:
    """Slurm lets mallory in, too, which says nothing about CI jobs."""
    ctl = realm.host("ctl")
    ctl.run(["sacctmgr", "-i", "add", "user", "mallory", "account=chem"])
    yield
    ctl.run(["sacctmgr", "-i", "delete", "user", "mallory"])


@pytest.fixture(scope="module")
def mallory(realm: Realm, gitlab: GitLabControl) -> AtDesk:
    return AtDesk(realm, gitlab, "mallory")


@pytest.fixture(scope="module")
def alice_at_desk(realm: Realm, gitlab: GitLabControl) -> AtDesk:
    return AtDesk(realm, gitlab, "alice")


@pytest.fixture(scope="module")
def bob_at_desk(realm: Realm, gitlab: GitLabControl) -> AtDesk:
    return AtDesk(realm, gitlab, "bob")


@pytest.fixture(autouse=True)
def unlinked(mallory: AtDesk) -> Iterator[None]:
    """Every test begins and ends with nobody linked to mallory's account."""
    yield
    for link in mallory.links():
        assert mallory.call(f"/v1/links/{link['link_id']}/end", reason="the test is over").status == 200


@pytest.fixture(scope="module")
def mallorys(realm: Realm, gitlab: GitLabControl) -> Person:
    return Person(realm, gitlab, "mallory")


@pytest.mark.threat("T16")
def test_who_proves_both_is_linked_runs_as_themselves_and_ends_it(mallory: AtDesk, mallorys: Person) -> None:
    before = mallorys.finished(mallorys.push("echo ran"))
    assert mallory.link("mallory").status == 303
    done = mallorys.finished(mallorys.push('echo "who: $(id -un)"'))
    running = mallorys.push(WAIT_FOR_GO)
    mallorys.waits(running)
    (link,) = mallory.links()
    ended = mallory.form("/link/end", link_id=link["link_id"])
    stopped = mallorys.finished(running)
    after = mallorys.finished(mallorys.push("echo ran"))

    assert (before.status, done.status, stopped.status, after.status) == ("failed", "success", "failed", "failed")
    assert "account.not_mapped" in mallorys.log(before)
    assert "who: mallory" in mallorys.log(done)
    assert (link["user_id"], link["uid"], link["method"]) == (103, 20003, "self_service")
    assert ended.status == 303
    assert "link.ended" in mallorys.log(running)
    assert "account.not_mapped" in mallorys.log(after)


@pytest.mark.threat("T16")
def test_nobody_links_a_gitlab_user_without_being_signed_in_as_them(
    gitlab: GitLabControl, mallory: AtDesk, alice_at_desk: AtDesk
) -> None:
    """Whatever of bob's or mallory's flow alice gets hold of, it makes nobody hers."""
    theirs = mallory.callback("mallory")
    taken = mallory.get(mallory.callback("bob"))
    confirm = confirmation(mallory.get(mallory.callback("mallory")))

    assert taken.code == "link.taken"
    assert alice_at_desk.get(theirs).code == "link.foreign"
    assert alice_at_desk.form("/link/confirm", confirmation=confirm).code == "link.foreign"
    assert mallory.get(theirs).status == 200
    assert mallory.get(theirs).code == "oauth.refused"
    stale = mallory.callback("mallory")
    gitlab.age_oauth(3600)
    assert mallory.get(stale).code == "oauth.refused"
    assert mallory.links() == []


@pytest.mark.threat("T16")
def test_a_code_of_one_flow_is_worth_nothing_in_another(mallory: AtDesk, alice_at_desk: AtDesk) -> None:
    """PKCE: alice's code, put into mallory's own flow, is not exchanged."""
    code = alice_at_desk.callback("alice").partition("code=")[2].partition("&")[0]
    theirs = mallory.callback("mallory")
    mixed = theirs.replace(theirs.partition("code=")[2].partition("&")[0], code)
    assert mixed != theirs
    assert mallory.get(mixed).code == "oauth.refused"


@pytest.mark.threat("T40")
def test_a_row_of_administrators_counts_once_two_have_agreed(
    mallory: AtDesk, mallorys: Person, alice_at_desk: AtDesk, bob_at_desk: AtDesk
) -> None:
    proposal = {"issuer": GITLAB, "user_id": 103, "account": "mallory", "reason": "new here"}
    assert mallory.call("/v1/links", **proposal).code == "caller.role"
    assert bob_at_desk.call("/v1/links", **proposal).code == "caller.role"
    made = alice_at_desk.call("/v1/links", **proposal)
    link_id = made.json["link"]["link_id"]
    path = f"/v1/links/{link_id}"
    assert made.status == 201
    with pytest.raises(RealmError, match=r"link\.four_eyes"):
        alice_at_desk.command("account", "approve", link_id, "--reason", "me too")
    assert mallory.call(f"{path}/approve", reason="me").code == "caller.role"
    refused = mallorys.finished(mallorys.push("echo ran"))
    assert bob_at_desk.call(f"{path}/approve", reason="checked").code == "caller.not_bound"
    bob_at_desk.command("account", "approve", link_id, "--reason", "checked")
    done = mallorys.finished(mallorys.push('echo "who: $(id -un)"'))

    assert refused.status == "failed"
    assert "account.not_mapped" in mallorys.log(refused)
    assert done.status == "success"
    assert "who: mallory" in mallorys.log(done)


def test_a_providers_word_pins_the_account_at_its_first_use(
    realm: Realm, gitlab: GitLabControl, mallory: AtDesk
) -> None:
    identities = [("ldapmain", "uid=mallory,ou=people,dc=realm,dc=test")]
    gitlab.create_user("mallory-by-ldap", id=203, identities=identities, pass_identities=True)
    person = Person(realm, gitlab, "mallory-by-ldap")
    assert mallory.links() == []
    done = person.finished(person.push('echo "who: $(id -un)"'))
    (link,) = mallory.links()

    assert done.status == "success"
    assert "who: mallory" in person.log(done)
    assert (link["user_id"], link["account"], link["uid"]) == (203, "mallory", 20003)
    assert (link["method"], link["proposed_by"]) == ("provider", "provider:ldapmain")


@pytest.mark.threat("T16")
def test_an_owner_stops_what_runs_as_them_at_once_and_lets_it_go_on(
    realm: Realm, alice: Person, bob: Person, alice_at_desk: AtDesk
) -> None:
    job, bobs = alice.push(WAIT_FOR_GO), bob.push(WAIT_FOR_GO)
    alice.waits(job)
    bob.waits(bobs)
    slurm_id = alice.slurm_id(job)
    since = time.monotonic()
    assert alice_at_desk.form("/link/consent", act="stop").status == 303
    try:
        took = seconds_until_ended(realm, slurm_id, since)
        alice.finished(job)
        refused = alice.finished(alice.push("echo ran"))
    finally:
        assert alice_at_desk.call("/v1/consent", act="resume").status == 200
    bob.go(bobs)

    assert took < SOON_SECONDS
    assert "consent.stopped" in alice.log(job)
    assert "consent.stopped" in alice.log(refused)
    assert "\nran" not in alice.log(refused)
    assert bob.finished(bobs).status == "success"
    assert alice.finished(alice.push("echo ran")).status == "success"


@pytest.mark.threat("T40")
def test_an_operator_stops_a_person_from_their_desk(
    realm: Realm, alice: Person, alice_at_desk: AtDesk, bob_at_desk: AtDesk
) -> None:
    switch = {"scope": "user", "issuer": GITLAB, "number": 101, "reason": "laptop stolen"}
    assert alice_at_desk.call("/v1/kills", **switch | {"number": 102}).code == "caller.role"
    job = alice.push(WAIT_FOR_GO)
    alice.waits(job)
    slurm_id = alice.slurm_id(job)
    since = time.monotonic()
    thrown = bob_at_desk.call("/v1/kills", **switch)
    path = f"/v1/kills/{thrown.json['switch']['switch_id']}/lift"
    try:
        took = seconds_until_ended(realm, slurm_id, since)
        alice.finished(job)
        assert alice_at_desk.call(path, reason="it is me").code == "caller.role"
    finally:
        refused = bob_at_desk.call(path, reason="laptop found").code
        bob_at_desk.command("kill", "lift", thrown.json["switch"]["switch_id"], "--reason", "laptop found")

    assert refused == "caller.not_bound", "what no browser can do well is for the command"
    assert (thrown.status, thrown.json["new"]) == (201, True)
    assert took < SOON_SECONDS
    assert "killed.user" in alice.log(job)
    assert "laptop" not in alice.log(job)
    assert alice.finished(alice.push("echo ran")).status == "success"


@pytest.mark.threat("T41")
def test_a_ticket_that_another_sites_page_borrows_changes_nothing(mallory: AtDesk) -> None:
    page = mallory.get("/link")
    assert page.status == 200
    for options in (
        ["--header", "Origin: https://evil.test", "--data", "act=stop"],
        ["--header", "Origin: null", "--data", "act=stop"],
        ["--data", "act=stop"],
    ):
        assert mallory._curl("https://bridge.realm.test:8443/link/consent", *options).code == "request.cross_site"
    assert mallory.get("/v1/consent").json["standing"]["consent"] is None
