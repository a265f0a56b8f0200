"""An account's owner stops CI from acting as them, with their own ticket, and nobody else can."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from realm import Realm, tls
from realm.bridgehost import COMMAND, URL
from realm.demo.projects import ci_file, job
from realm.gitlab.client import GitLabControl
from tests.e2e.at_desk import AtDesk
from tests.e2e.person import WAIT_FOR_GO, Person
from tests.e2e.test_kill import seconds_until_ended, slurm_state

Says = Callable[..., Any]


@pytest.fixture
def says(realm: Realm, gitlab: GitLabControl) -> Iterator[Says]:
    """What `ci-bridge consent` does at host desk for somebody with a ticket; all stops are taken back afterwards."""
    spoke: set[str] = set()

    def consent(who: str, *words: str) -> Any:
        if who not in spoke:
            AtDesk(realm, gitlab, who)
            spoke.add(who)
        return json.loads(realm.host("desk").run([*COMMAND, "consent", *words, "--json"], user=who).stdout)

    realm.host("desk").write("/etc/ci-bridge/client.toml", f'server = "{URL}"\nca_file = "{tls.CA_PATH}"\n')
    yield consent
    for who in spoke:
        consent(who, "resume")
        consent(who, "unlist")


def refusal(person: Person, code: str) -> None:
    """That a new job is refused, and why."""
    done = person.finished(person.push("echo ran"))
    assert (done.status, done.failure_reason) == ("failed", "script_failure")
    assert code in person.log(done)
    assert "\nran" not in person.log(done)


@pytest.mark.threat("T16")
def test_a_stop_ends_what_runs_as_me_refuses_what_comes_and_touches_nobody_else(
    realm: Realm, alice: Person, bob: Person, says: Says
) -> None:
    mine, bobs = alice.push(WAIT_FOR_GO), bob.push(WAIT_FOR_GO)
    alice.waits(mine)
    bob.waits(bobs)
    slurm_id = alice.slurm_id(mine)
    since = time.monotonic()
    said = says("alice", "stop")
    took = seconds_until_ended(realm, slurm_id, since)
    assert (said["account"], said["mode"]) == ("alice", "stopped")
    assert took < 30
    assert slurm_state(realm, slurm_id) in ("CANCELLED", "gone")
    assert alice.finished(mine).status == "failed"
    assert "consent.stopped" in alice.log(mine)
    refusal(alice, "consent.stopped")
    bob.go(bobs)
    assert bob.finished(bobs).status == "success"

    says("bob", "resume")
    refusal(alice, "consent.stopped")
    assert says("alice", "resume")["mode"] == "site"
    assert alice.finished(alice.push("echo ran")).status == "success"


@pytest.mark.threat("T16")
def test_a_denied_project_and_one_that_is_not_listed_do_not_run_as_me(
    realm: Realm, gitlab: GitLabControl, alice: Person, says: Says
) -> None:
    tree = ci_file(it=job("echo ran"))
    made = gitlab.create_project("alice/consent", files=tree, members={"alice": 40}, protected_refs=["main"])
    project = str(made.id)
    says("alice", "deny", project)
    again = gitlab.start_pipeline(made.id, "alice").jobs[0]
    assert alice.finished(again).status == "failed"
    assert "consent.denied" in alice.log(again)

    says("alice", "only-listed")
    refusal(alice, "consent.not_given")
    says("alice", "allow", project)
    listed = gitlab.start_pipeline(made.id, "alice").jobs[0]
    assert alice.finished(listed).status == "success"
    shown = says("alice", "show")
    assert shown["consent"]["mode"] == "listed"
    assert [one["project_id"] for one in shown["consent"]["allowed"]] == [made.id]


@pytest.mark.threat("T16")
def test_without_a_ticket_or_with_anothers_name_nothing_is_said(realm: Realm, gitlab: GitLabControl) -> None:
    alice, bob = AtDesk(realm, gitlab, "alice"), AtDesk(realm, gitlab, "bob")
    before = alice.get("/v1/consent").json["standing"]["consent"]
    named = {"act": "stop", "issuer": None, "project_id": None, "account": "alice"}
    assert bob.call("/v1/consent", **named).code == "request.invalid"
    curl = [
        "curl",
        "--silent",
        "--cacert",
        tls.CA_PATH,
        "--header",
        "X-CI-Bridge-Client: x",
        "--json",
        '{"act":"stop"}',
    ]
    answer = json.loads(realm.host("desk").run([*curl, f"{URL}/v1/consent"]).stdout)
    assert answer["code"] == "negotiate.required"
    assert alice.get("/v1/consent").json["standing"]["consent"] == before
