"""A bundle comes into force by two people at their own machines, counts at once, and goes back; never by one alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from realm import Realm, forge, tls
from realm.bridgehost import COMMAND, POLICIES, URL, ci_bridge
from realm.errors import RealmError
from realm.gitlab.client import GitLabControl
from tests.e2e.at_desk import AtDesk
from tests.e2e.person import WAIT_FOR_GO, Person
from tests.e2e.site_policy import reload
from tests.tap.plugin import tapped_realm

REASON = ("--reason", "as agreed")
ADMINS = """
[[member]]
principal = "alice@REALM.TEST"
roles = ["author", "approver", "operator"]

[[member]]
principal = "bob@REALM.TEST"
roles = ["approver", "operator"]
"""
NO_BOB = {
    "no-bob.cedar": """
@id("no-bob")
@reason("bob's jobs are stopped for now.")
forbid (principal, action == Action::"run_as", resource)
when { resource.uid == 20002 };
""",
    "cases/no-bob.toml": """
[[case]]
name = "alice runs"
issuer = "https://gitlab.realm.test"
user_id = 101
expect = { decision = "allowed", account = "alice" }

[[case]]
name = "bob does not"
issuer = "https://gitlab.realm.test"
user_id = 102
expect = { decision = "policy.forbidden" }
""",
    # These let bob in.
    "cases/people.toml": None,
    "cases/research.toml": None,
}

Files = Mapping[str, str | None]


class Desk:
    """`ci-bridge policy` and `run` at host desk, for people with their own tickets."""

    def __init__(self, realm: Realm, gitlab: GitLabControl) -> None:
        self._realm = realm
        self._host = realm.host("desk")
        self._host.write("/etc/ci-bridge/client.toml", f'server = "{URL}"\nca_file = "{tls.CA_PATH}"\n')
        for who in ("alice", "bob", "mallory"):
            AtDesk(realm, gitlab, who)

    def says(self, who: str, *words: str) -> Any:
        """What a command answers."""
        return json.loads(self._host.run([*COMMAND, *words, "--json"], user=who).stdout)

    def refused(self, who: str, code: str, *words: str) -> None:
        """Check that a command says no by this code."""
        with pytest.raises(RealmError, match=rf"\[{code.replace('.', '[.]')}\]"):
            self._host.run([*COMMAND, *words], user=who)

    def directory(self, name: str, files: Files) -> str:
        """A policy directory at the desk: the bundle in force with some files added, or taken away where None."""
        path = f"/home/alice/{name}"
        self._host.run(["rm", "-rf", path])
        self._host.run([*COMMAND, "policy", "active", "--to", path], user="alice")
        for file, text in files.items():
            if text is None:
                self._host.run(["rm", f"{path}/{file}"])
            else:
                self._host.write(f"{path}/{file}", text, owner="alice")
        return path

    def active(self) -> str:
        """The hash of the bundle in force."""
        return str(self.says("alice", "policy", "active")["content_hash"])

    def submitted(self, name: str, files: Files) -> tuple[str, str]:
        """Alice's proposal before the approvers, and its content's hash."""
        path = self.directory(name, files)
        made = self.says("alice", "policy", "submit", path, "--title", name)
        assert made["state"] == "submitted"
        return made["proposal_id"], made["content_hash"]

    def approved(self, name: str, files: Files) -> tuple[str, str]:
        """The same, once bob has approved it."""
        made, named = self.submitted(name, files)
        self.says("bob", "policy", "approve", made, *REASON, "--yes", "--hash", named)
        return made, named


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    """A realm of its own: what was activated once, no other test could take back."""
    with tapped_realm() as realm:
        yield realm


@pytest.fixture(scope="module")
def gitlab(realm: Realm) -> Iterator[GitLabControl]:
    with forge.control(realm) as client:
        yield client


@pytest.fixture(scope="module")
def alice(realm: Realm, gitlab: GitLabControl) -> Person:
    return Person(realm, gitlab, "alice")


@pytest.fixture(scope="module")
def bob(realm: Realm, gitlab: GitLabControl) -> Person:
    return Person(realm, gitlab, "bob")


@pytest.fixture(scope="module")
def desk(realm: Realm, gitlab: GitLabControl) -> Desk:
    realm.host("bridge").write(f"{POLICIES}/roles.toml", ADMINS)
    reload(realm)
    return Desk(realm, gitlab)


@pytest.fixture
def back(desk: Desk) -> Iterator[str]:
    """The bundle in force before the test, which is in force again after it."""
    before = desk.active()
    yield before
    if desk.active() != before:
        desk.says("bob", "policy", "roll-back", before, "--reason", "the test is over")


def outcome(person: Person) -> tuple[str, str]:
    """How a new job of somebody ends, and its log."""
    done = person.finished(person.push("echo ran"))
    return done.status, person.log(done)


@pytest.mark.threat("T40")
def test_what_two_people_agreed_on_counts_at_once_and_what_runs_goes_on(
    realm: Realm, desk: Desk, back: str, alice: Person, bob: Person
) -> None:
    made, named = desk.submitted("no-bob", NO_BOB)
    approve = ("policy", "approve", made, *REASON, "--yes", "--hash", named)
    desk.refused("alice", "policy.four_eyes", *approve)
    desk.refused("mallory", "caller.role", *approve)
    desk.refused("bob", "policy.other_content", *approve[:-1], "0" * 64)
    desk.refused("bob", "policy.unconfirmed", *approve[:-2])
    desk.refused("bob", "policy.state", "policy", "activate", made, *REASON)
    alices, bobs = alice.push(WAIT_FOR_GO), bob.push(WAIT_FOR_GO)
    alice.waits(alices)
    bob.waits(bobs)
    assert desk.says("bob", *approve)["state"] == "approved"
    done = desk.says("bob", "policy", "activate", made, *REASON)
    status, log = outcome(bob)
    assert status == "failed"
    assert "policy.forbidden" in log
    assert "\nran" not in log
    assert [one["account"] for one in done["revoked"]] == ["bob"]
    for person, job in ((alice, alices), (bob, bobs)):
        person.go(job)
        assert person.finished(job).status == "success"
    assert outcome(alice)[0] == "success"
    rolled = desk.says("bob", "policy", "roll-back", back, *REASON)
    assert (rolled["kind"], rolled["content_hash"]) == ("roll_back", back)
    assert outcome(bob)[0] == "success"
    kept = json.loads(ci_bridge(realm, "audit", "timeline", "--reference", made, "--json"))
    assert [one["detail"]["act"] for one in kept][:3] == ["proposed", "submitted", "approved"]
    assert {one["basis"]["bundle_hash"] for one in kept} == {named}


@pytest.mark.threat("T40")
def test_a_run_that_the_new_bundle_would_refuse_can_be_ended_with_it(desk: Desk, back: str, bob: Person) -> None:
    job = bob.push(WAIT_FOR_GO)
    bob.waits(job)
    made, _ = desk.approved("no-bob-now", NO_BOB)
    done = desk.says("bob", "policy", "activate", made, *REASON, "--cancel-revoked")
    (revoked,) = done["revoked"]
    assert (revoked["account"], revoked["cancel"]) == ("bob", "cancelled")
    assert bob.finished(job).status == "failed"
    assert "run.cancelled" in bob.log(job)
    assert desk.says("alice", "run", "show", revoked["run_id"])["cancel"]["cancelled_by"] == "bob@REALM.TEST"


@pytest.mark.threat("T40")
def test_what_was_approved_over_another_bundle_is_not_activated(desk: Desk, back: str) -> None:
    first, named = desk.approved("first", {"first.cedar": "// first\n"})
    second, _ = desk.approved("second", {"second.cedar": "// second\n"})
    desk.says("bob", "policy", "activate", first, *REASON)
    desk.refused("bob", "policy.stale", "policy", "activate", second, *REASON)
    desk.refused("alice", "policy.stale", "policy", "submit", second)
    assert desk.active() == named
    assert desk.says("alice", "policy", "withdraw", second)["state"] == "withdrawn"


@pytest.mark.threat("T40")
@pytest.mark.usefixtures("back")
def test_breaking_the_glass_takes_two_operators_and_the_job_log_says_so(desk: Desk, alice: Person) -> None:
    calm, approved = desk.approved("calm", {"calm.cedar": "// calm\n"})
    desk.says("bob", "policy", "activate", calm, *REASON)
    path = desk.directory("emergency", {"emergency.cedar": "// an emergency\n"})
    ask = ("policy", "break-glass", "--minutes", "5", "--reason", "GitLab is on fire")
    desk.refused("mallory", "caller.role", *ask, "--hash", approved)
    asked = desk.says("alice", *ask, path)
    number, named = str(asked["number"]), asked["content_hash"]
    assert desk.active() == approved
    confirm = ("policy", "confirm", number, "--yes", "--hash", named)
    desk.refused("alice", "policy.four_eyes", *confirm)
    desk.refused("bob", "policy.other_content", *confirm[:-1], "0" * 64)
    assert desk.says("bob", *confirm)["second"] == "bob@REALM.TEST"
    assert desk.active() == named
    status, log = outcome(alice)
    assert status == "success"
    assert "emergency" in log.lower()
    rolled = desk.says("bob", "policy", "roll-back", approved, "--reason", "the fire is out")
    assert rolled["content_hash"] == approved
    assert "emergency" not in outcome(alice)[1].lower()
