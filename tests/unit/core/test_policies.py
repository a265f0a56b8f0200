"""How policy comes into force: never by one person, never another content than was read, and everywhere at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench import Broker, refused
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from policy_site import (
    LOCKED_OUT,
    PEOPLE,
    activate,
    approve,
    approved,
    by_token,
    draft,
    emergency,
    hash_now,
    in_force,
    roles,
    submitted,
    texts,
    who,
    without_alice,
)
from sqlalchemy import text
from structlog.testing import capture_logs

from bridge.active import ActivePolicy
from bridge.broker.client import BrokerClient
from bridge.broker.listed import ListedTargets
from bridge.errors import BridgeError, Conflict
from bridge.people.bundling import MAX_BUNDLE_BYTES
from bridge.people.policies import MAX_OPEN
from bridge.policy.files import content_hash
from bridge.policy.roles import Role
from bridge.proposals import APPROVAL_LIFE, Activation, Proposal, ProposalState, person_of
from bridge.seal import GrantSeal, Seal
from bridge.ticketing import Use


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    broker.use_texts(texts())
    return broker


def admit(broker: Broker, job_id: int = 301) -> Any:
    """Alice's job."""
    return broker.admission.admit(broker.evidence(job_id))


def decide(broker: Broker, one: Proposal, name: str, **changes: Any) -> Proposal:
    """Approve something, or nearly."""
    caller = changes.pop("caller", None) or who(broker, name)
    named = {"proposal_id": one.proposal_id, "version": one.version, "read_hash": one.content_hash}
    return broker.proposing.decide(caller, **{**named, "approve": True, "reason": "read it", **changes})


def rewrite(broker: Broker, one: Proposal, files: dict[str, str], name: str = "ada/admin") -> Proposal:
    """Put other content into it."""
    return broker.proposing.rewrite(who(broker, name), one.proposal_id, one.version, files)


def test_what_one_proposes_and_another_approves_comes_into_force_and_is_on_record(broker: Broker) -> None:
    before = hash_now(broker)
    one = draft(broker)
    assert (one.state, one.version, one.base_hash, one.base_number) == (ProposalState.DRAFT, 1, before, 0)
    one = broker.proposing.submit(who(broker, "ada/admin"), one.proposal_id, 1)
    one = approve(broker, one)
    assert (one.state, one.decided_by, one.version) == (ProposalState.APPROVED, "ben/admin@REALM.TEST", 3)
    assert hash_now(broker) == before
    activation = activate(broker, one)
    assert hash_now(broker) == one.content_hash == content_hash(texts("one"))
    assert (activation.number, activation.proposal_id, activation.by) == (1, one.proposal_id, "olga/admin@REALM.TEST")
    done = broker.records(type="policy", phase="ok", reference=one.proposal_id)
    assert [record["detail"]["act"] for record in done] == ["proposed", "submitted", "approved", "activate"]
    assert {record["basis"]["bundle_hash"] for record in done} == {one.content_hash}
    assert done[-1]["detail"]["before"] == before
    assert {record["detail"]["method"] for record in done} == {"negotiate"}
    assert admit(broker).grant.bundle_hash == one.content_hash
    (final,) = broker.register.read().proposals
    assert (final.state, final.activated_by, final.version) == (ProposalState.ACTIVATED, "olga/admin@REALM.TEST", 4)


def own_proposal(broker: Broker) -> object:
    return approve(broker, submitted(broker, author="eve/admin"), "eve/admin")


def own_proposal_rejected(broker: Broker) -> object:
    return decide(broker, submitted(broker, author="eve/admin"), "eve/admin", approve=False)


def with_another_hat(broker: Broker) -> object:
    broker.use_texts(texts(roles=roles({**PEOPLE, "eve": "approver"})))
    return approve(broker, submitted(broker, author="eve/admin"), "eve")


def with_another_spelling(broker: Broker) -> object:
    broker.use_texts(texts(roles=roles({**PEOPLE, "EVE/admin": "approver"})))
    return approve(broker, submitted(broker, author="eve/admin"), "EVE/admin")


def given_the_role_later(broker: Broker) -> object:
    one = submitted(broker)
    broker.use_texts(texts(roles=roles({**PEOPLE, "ada/admin": "author approver"})))
    return approve(broker, one, "ada/admin")


def by_ones_own_token(broker: Broker) -> object:
    one = submitted(broker, author="eve/admin")
    return decide(broker, one, "", caller=by_token(broker, "eve/admin"))


def by_anothers_token(broker: Broker) -> object:
    return decide(broker, submitted(broker), "", caller=by_token(broker, "ben/admin"))


def by_a_process(broker: Broker) -> object:
    return decide(broker, submitted(broker), "", caller=broker.people.callers.by_socket(0, "root(0)"))


def by_a_process_with_the_role(broker: Broker) -> object:
    caller = replace(broker.people.callers.by_socket(0, "root(0)"), roles=frozenset(Role))
    return decide(broker, submitted(broker), "", caller=caller)


def what_was_swapped(broker: Broker) -> object:
    one = submitted(broker)
    swapped = broker.proposing.submit(
        who(broker, "ada/admin"), one.proposal_id, rewrite(broker, one, texts("evil")).version
    )
    return decide(broker, swapped, "ben/admin", read_hash=one.content_hash)


def the_version_before(broker: Broker) -> object:
    one = submitted(broker)
    swapped = rewrite(broker, one, texts("evil"))
    broker.proposing.submit(who(broker, "ada/admin"), one.proposal_id, swapped.version)
    return decide(broker, one, "ben/admin")


def the_version_to_come(broker: Broker) -> object:
    one = submitted(broker)
    return decide(broker, one, "ben/admin", version=one.version + 1)


def a_draft(broker: Broker) -> object:
    return approve(broker, draft(broker))


def what_was_rejected(broker: Broker) -> object:
    one = decide(broker, submitted(broker), "ben/admin", approve=False)
    return approve(broker, one, "cyd/admin")


def what_was_withdrawn(broker: Broker) -> object:
    one = submitted(broker)
    return approve(broker, broker.proposing.withdraw(who(broker, "ada/admin"), one.proposal_id, one.version))


def twice(broker: Broker) -> object:
    one = submitted(broker)
    approve(broker, one)
    return approve(broker, one)


def after_another(broker: Broker) -> object:
    one = submitted(broker)
    approve(broker, one)
    return approve(broker, one, "cyd/admin")


def after_losing_the_role(broker: Broker) -> object:
    """The role goes between the ticket and the transaction (T48)."""
    caller, one = who(broker, "ben/admin"), submitted(broker)
    broker.use_texts(texts(roles=roles({**PEOPLE, "ben/admin": "viewer"})))
    return decide(broker, one, "", caller=caller)


def nothing_at_all(broker: Broker) -> object:
    one = submitted(broker)
    return decide(broker, one, "ben/admin", proposal_id="0000-0000-0000")


APPROVALS: dict[str, tuple[Callable[[Broker], object], str]] = {
    "what they proposed themselves": (own_proposal, "policy.four_eyes"),
    "nor rejects what they proposed themselves": (own_proposal_rejected, "policy.four_eyes"),
    "their own, with another principal of theirs": (with_another_hat, "policy.four_eyes"),
    "their own, with their name in capitals": (with_another_spelling, "policy.four_eyes"),
    "their own, after they were made approvers": (given_the_role_later, "policy.four_eyes"),
    "their own, by a token": (by_ones_own_token, "caller.not_a_person"),
    "by a token": (by_anothers_token, "caller.not_a_person"),
    "as root on the machine": (by_a_process, "caller.role"),
    "as a process with all the roles": (by_a_process_with_the_role, "caller.not_a_person"),
    "another content than they read": (what_was_swapped, "policy.changed"),
    "an earlier version": (the_version_before, "policy.changed"),
    "a version that is to come": (the_version_to_come, "policy.changed"),
    "a draft": (a_draft, "policy.state"),
    "what was rejected": (what_was_rejected, "policy.state"),
    "what was withdrawn": (what_was_withdrawn, "policy.state"),
    "twice": (twice, "policy.changed"),
    "what another approved meanwhile": (after_another, "policy.changed"),
    "after they lost the role": (after_losing_the_role, "caller.role"),
    "what there is not": (nothing_at_all, "policy.unknown"),
    "as an author": (lambda one: approve(one, submitted(one, author="eve/admin"), "ada/admin"), "caller.role"),
    "as an operator": (lambda one: approve(one, submitted(one), "olga/admin"), "caller.role"),
    "as a viewer": (lambda one: approve(one, submitted(one), "vic"), "caller.role"),
    "as a stranger": (lambda one: approve(one, submitted(one), "mallory"), "caller.role"),
    "without a reason": (lambda one: decide(one, submitted(one), "ben/admin", reason=" "), "policy.text"),
    "with a reason that changes a terminal": (
        lambda one: decide(one, submitted(one), "ben/admin", reason="\x1b[2Jfine"),
        "policy.text",
    ),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), APPROVALS.values(), ids=APPROVALS.keys())
def test_nobody_approves(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    assert error.reference is not None
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"], record["code"]) == ("policy", "denied", code)
    for one in broker.register.read().proposals:
        assert one.state is not ProposalState.APPROVED or (
            one.decided_by == "ben/admin@REALM.TEST" and one.version == 3
        )
    assert broker.register.read().activations == ()


def edit_after_approval(broker: Broker) -> object:
    one = approved(broker)
    return activate(broker, rewrite(broker, one, texts("evil")))


def old_approval_of_edited(broker: Broker) -> object:
    one = approved(broker)
    rewrite(broker, one, texts("evil"))
    return activate(broker, one)


def submitted_again(broker: Broker) -> object:
    one = approved(broker)
    again = broker.proposing.submit(who(broker, "ada/admin"), one.proposal_id, one.version)
    return activate(broker, again)


def a_second_time(broker: Broker) -> object:
    one = approved(broker)
    activate(broker, one)
    return activate(broker, replace(one, version=one.version + 1))


def replayed(broker: Broker) -> object:
    one = approved(broker)
    activate(broker, one)
    return activate(broker, one)


def over_another(broker: Broker) -> object:
    one = approved(broker)
    in_force(broker, texts("two"))
    return activate(broker, one)


def over_what_came_back(broker: Broker) -> object:
    """The base changed, and changed back."""
    before = hash_now(broker)
    one = approved(broker)
    in_force(broker, texts("two"))
    broker.activating.roll_back(who(broker, "olga/admin"), before, "too early")
    assert hash_now(broker) == before
    return activate(broker, one)


def over_another_directory(broker: Broker) -> object:
    one = approved(broker)
    broker.use_texts(texts("by hand"))
    return activate(broker, one)


def too_late(broker: Broker) -> object:
    one = approved(broker)
    broker.clock.shift = APPROVAL_LIFE
    return activate(broker, one)


def after_losing_every_role(broker: Broker) -> object:
    caller, one = who(broker, "olga/admin"), approved(broker)
    broker.use_texts(texts(roles=roles({**PEOPLE, "olga/admin": "viewer"})))
    return broker.activating.activate(caller, one.proposal_id, one.version, "now")


def with_swapped_files(broker: Broker) -> object:
    """Whoever writes the database swaps the files under their hash."""
    one = approved(broker)
    with broker.engine.begin() as connection:
        statement = text("UPDATE bundles SET files = :files WHERE content_hash = :hash")
        connection.execute(statement, {"files": json.dumps(texts("evil")), "hash": one.content_hash})
    return activate(broker, one)


ACTIVATIONS: dict[str, tuple[Callable[[Broker], object], str]] = {
    "what was edited after the approval": (edit_after_approval, "policy.state"),
    "what was edited, by its old approval": (old_approval_of_edited, "policy.changed"),
    "what was submitted again": (submitted_again, "policy.state"),
    "what is activated already": (a_second_time, "policy.state"),
    "an approval twice": (replayed, "policy.changed"),
    "over another bundle than was read": (over_another, "policy.stale"),
    "over a bundle that went and came back": (over_what_came_back, "policy.stale"),
    "over a directory that was changed": (over_another_directory, "policy.stale"),
    "an old approval": (too_late, "policy.approval_expired"),
    "after they lost the role": (after_losing_every_role, "caller.role"),
    "files that were swapped": (with_swapped_files, "policy.content"),
    "what nobody approved": (lambda one: activate(one, submitted(one)), "policy.state"),
    "as its author": (lambda one: activate(one, approved(one), "ada/admin"), "caller.role"),
    "as a viewer": (lambda one: activate(one, approved(one), "vic"), "caller.role"),
    "as a stranger": (lambda one: activate(one, approved(one), "mallory"), "caller.role"),
    "by a token": (
        lambda one: one.activating.activate(by_token(one, "olga/admin"), approved(one).proposal_id, 3, "now"),
        "caller.not_a_person",
    ),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_nobody_activates(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"], record["code"]) == ("policy", "denied", code)
    assert all(one.content_hash != content_hash(texts("evil")) for one in broker.register.read().activations)
    assert hash_now(broker) != content_hash(texts("evil"))


@pytest.mark.threat("T40")
@pytest.mark.parametrize("act", ["rewrite", "submit", "withdraw"])
@pytest.mark.parametrize(("name", "code"), [("eve/admin", "policy.not_author"), ("ben/admin", "caller.role")])
def test_nobody_changes_what_another_proposed(broker: Broker, act: str, name: str, code: str) -> None:
    one = draft(broker)
    more = (texts("evil"),) if act == "rewrite" else ()
    change = getattr(broker.proposing, act)
    assert refused(lambda: change(who(broker, name), one.proposal_id, one.version, *more)).code == code
    assert broker.register.read().proposals == (one,)


def floor(number: int) -> dict[str, str]:
    """Policies with another floor of uids."""
    every = texts()
    return every | {"accounts.toml": every["accounts.toml"].replace("uid = 1000", f"uid = {number}", 1)}


def with_less_denied(name: str) -> dict[str, str]:
    """Policies that deny one account or group less."""
    every = texts("evil")
    assert f'"{name}", ' in every["accounts.toml"]
    return every | {"accounts.toml": every["accounts.toml"].replace(f'"{name}", ', "")}


def alone(**people: str) -> dict[str, str]:
    """Policies with these people only."""
    return texts("alone", roles=roles({name.replace("_", "/"): has for name, has in people.items()}))


CASE = texts()["cases/people.toml"]

NO_GOOD: dict[str, tuple[dict[str, str], str]] = {
    "nobody could change": (texts(roles=LOCKED_OUT), "policy.lock_out"),
    "nobody has a role in": (texts(roles=""), "policy.lock_out"),
    "one person alone could change": (alone(eve_admin="author approver"), "policy.lock_out"),
    "one person with two principals could change": (alone(eve_admin="author", eve="approver"), "policy.lock_out"),
    "nobody approves": (alone(ada="author", eve="author"), "policy.lock_out"),
    "takes everybody for a person": (floor(1), "policy.privileged"),
    "takes services for people": (floor(499), "policy.privileged"),
    "fails its own cases": (
        texts() | {"cases/people.toml": CASE.replace('"allowed"', '"policy.no_permit"', 1)},
        "policy.cases_failed",
    ),
    "is not TOML": (texts() | {"limits.toml": "[["}, "policy.invalid"),
    "lacks a file": ({name: one for name, one in texts().items() if name != "accounts.toml"}, "policy.invalid"),
    "lacks its schema": ({name: one for name, one in texts().items() if "schema" not in name}, "policy.invalid"),
    "is empty": ({}, "policy.invalid"),
    "is nested without end": (texts() | {"limits.toml": "a = " + "[" * 50_000}, "policy.invalid"),
}


@pytest.mark.threat("T40")
@pytest.mark.threat("T18")
@pytest.mark.parametrize(("files", "code"), NO_GOOD.values(), ids=NO_GOOD.keys())
def test_nobody_submits_a_bundle_that(broker: Broker, files: dict[str, str], code: str) -> None:
    one = draft(broker, files)
    assert refused(lambda: broker.proposing.submit(who(broker, "ada/admin"), one.proposal_id, 1)).code == code
    assert broker.register.read().proposals == (one,)


NO_FILES: dict[str, tuple[dict[str, str], str]] = {
    "../limits.toml": ({"../limits.toml": ""}, "policy.file_name"),
    "/etc/passwd": ({"/etc/passwd": ""}, "policy.file_name"),
    "cases/../../x.toml": ({"cases/../../x.toml": ""}, "policy.file_name"),
    "a folder of cedar": ({"more/x.cedar": ""}, "policy.file_name"),
    "a README": ({"README.md": ""}, "policy.file_name"),
    "a hidden file": ({".cedar": ""}, "policy.file_name"),
    "a line in the name": ({"x\n.cedar": ""}, "policy.file_name"),
    "a name that shows as another": ({"p\u0435ople.cedar": ""}, "policy.file_name"),
    "no name": ({"": ""}, "policy.file_name"),
    "text that runs backwards": ({"people.cedar": "permit \u202e"}, "policy.characters"),
    "text that does not show": ({"people.cedar": "per\u200bmit"}, "policy.characters"),
    "a carriage return": ({"people.cedar": "// forbid\rpermit"}, "policy.characters"),
    "a null": ({"people.cedar": "\0"}, "policy.characters"),
    "an escape": ({"people.cedar": "\x1b[2K"}, "policy.characters"),
    "half a character": ({"people.cedar": "\ud800"}, "policy.characters"),
    "another end of line": ({"people.cedar": "// forbid\u2028permit"}, "policy.characters"),
    "too much": ({"people.cedar": "a" * (MAX_BUNDLE_BYTES + 1)}, "policy.too_large"),
    "too many": ({f"p{n}.cedar": "" for n in range(201)}, "policy.too_large"),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("files", "code"), NO_FILES.values(), ids=NO_FILES.keys())
@pytest.mark.parametrize("how", ["propose", "rewrite", "break glass"])
def test_no_bundle_has(broker: Broker, files: dict[str, str], code: str, how: str) -> None:
    one = draft(broker) if how == "rewrite" else None

    def act() -> object:
        if one is not None:
            return rewrite(broker, one, texts() | files)
        if how == "propose":
            return draft(broker, texts() | files)
        return broker.activating.break_glass(who(broker, "olga/admin"), 5, "now", files=texts() | files)

    assert refused(act).code == code
    assert broker.register.read().activations == ()


def test_lines_that_end_otherwise_are_the_same_bundle(broker: Broker) -> None:
    windows = {name: one.replace("\n", "\r\n") for name, one in texts("one").items()}
    assert draft(broker, windows).content_hash == draft(broker).content_hash


@pytest.mark.threat("T40")
def test_nobody_fills_the_register_with_drafts(broker: Broker) -> None:
    every = [draft(broker, {}) for _ in range(MAX_OPEN)]
    assert refused(lambda: draft(broker, {})).code == "policy.too_many"
    broker.proposing.withdraw(who(broker, "ada/admin"), every[0].proposal_id, 1)
    draft(broker, {})
    draft(broker, {}, author="eve/admin")


def test_nobody_takes_back_by_oversight_what_others_changed(broker: Broker) -> None:
    ada, before = who(broker, "ada/admin"), hash_now(broker)
    one = draft(broker)
    now = in_force(broker, texts("two")).content_hash
    submit = broker.proposing.submit
    for base in (None, before):
        error = refused(partial(submit, ada, one.proposal_id, one.version, base))
        assert (error.code, type(error)) == ("policy.stale", Conflict)
    assert refused(lambda: broker.proposing.propose(ada, "three", texts("three"), before)).code == "policy.stale"
    again = submit(ada, one.proposal_id, one.version, now)
    assert (again.base_hash, again.base_number) == (now, 1)
    activate(broker, approve(broker, again))
    assert hash_now(broker) == one.content_hash


def test_one_can_go_back_to_what_was_approved_and_to_the_directorys_first(broker: Broker) -> None:
    first = hash_now(broker)
    two, three = in_force(broker, texts("two")), in_force(broker, texts("three"))
    olga = who(broker, "olga/admin")
    for target in (first, three.content_hash, two.content_hash):
        activation = broker.activating.roll_back(olga, target, "too slow")
        assert hash_now(broker) == target
        assert admit(broker, 300 + activation.number).grant.bundle_hash == target
    # The directory counts no more, whatever is in it.
    broker.use_texts(texts("by hand"))
    broker.active.reload()
    assert hash_now(broker) == two.content_hash
    assert broker.activating.roll_back(olga, first, "again").number == 6
    assert hash_now(broker) == first


def back_to_more_roles(broker: Broker) -> object:
    """A bundle in which mallory approved comes back by the hand of one person."""
    before = in_force(broker, texts("two", roles=roles({**PEOPLE, "mallory": "approver"})))
    in_force(broker, texts("three"))
    return broker.activating.roll_back(who(broker, "olga/admin"), before.content_hash, "sorry")


def back_to_ones_own_role(broker: Broker) -> object:
    before = in_force(broker, texts("two"))
    in_force(broker, texts("three", roles=roles({**PEOPLE, "eve/admin": "approver"})))
    return broker.activating.roll_back(who(broker, "eve/admin"), before.content_hash, "sorry")


def back(name: str, *, token: bool = False) -> Callable[[Broker], object]:
    """Somebody who may not."""

    def attack(broker: Broker) -> object:
        first = hash_now(broker)
        in_force(broker, texts("two"))
        caller = by_token(broker, name) if token else who(broker, name)
        return broker.activating.roll_back(caller, first, "sorry")

    return attack


def back_to(choose: Callable[[Broker], str]) -> Callable[[Broker], object]:
    """Something that was never in force."""
    return lambda broker: broker.activating.roll_back(who(broker, "olga/admin"), choose(broker), "sorry")


ROLL_BACKS: dict[str, tuple[Callable[[Broker], object], str]] = {
    "to roles that others lost": (back_to_more_roles, "policy.more_roles"),
    "to roles that they lost themselves": (back_to_ones_own_role, "policy.more_roles"),
    "to what was only proposed": (back_to(lambda one: draft(one).content_hash), "policy.never_active"),
    "to what was only approved": (back_to(lambda one: approved(one).content_hash), "policy.never_active"),
    "to what there is not": (back_to(lambda one: "0" * 64), "policy.never_active"),
    "to what is in force": (
        back_to(lambda one: in_force(one, texts("two")).content_hash),
        "policy.in_force",
    ),
    "as an author": (back("ada/admin"), "caller.role"),
    "as a viewer": (back("vic"), "caller.role"),
    "by a token": (back("olga/admin", token=True), "caller.not_a_person"),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), ROLL_BACKS.values(), ids=ROLL_BACKS.keys())
def test_nobody_goes_back(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"]) == ("policy", "denied")


@pytest.mark.threat("T40")
def test_nobody_goes_back_to_what_only_an_emergency_had_in_force(broker: Broker) -> None:
    over = emergency(broker, texts("two"), minutes=5)
    in_force(broker, texts("one"))
    olga = who(broker, "olga/admin")
    error = refused(lambda: broker.activating.roll_back(olga, over.content_hash, "again"))
    assert error.code == "policy.never_active"


def test_two_operators_change_policy_for_some_hours_and_everybody_hears_of_it(broker: Broker) -> None:
    before = hash_now(broker)
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "the lab is on fire", files=texts("two"))
    assert hash_now(broker) == before
    confirmed = broker.activating.confirm(who(broker, "omar/admin"), asked.number, asked.content_hash)
    assert confirmed.second == "omar/admin@REALM.TEST"
    with capture_logs() as logs:
        grant = admit(broker).grant
        admit(broker, 302)
    assert [one["log_level"] for one in logs if one["event"] == "policy.emergency"] == ["warning"]
    until = f"under the emergency policy until {confirmed.ends_at:%H:%M} UTC"
    assert (grant.bundle_hash, grant.reason.endswith(until)) == (content_hash(texts("two")), True)
    (first,) = broker.records(type="policy", phase="event")
    assert first["basis"]["bundle_hash"] == grant.bundle_hash
    assert [one["detail"]["act"] for one in broker.records(type="policy", phase="ok")] == ["break_glass", "confirmed"]
    broker.clock.shift = timedelta(minutes=60)
    assert hash_now(broker) == before
    after = admit(broker, 303).grant
    assert (after.bundle_hash, "emergency" in after.reason) == (before, False)


def confirm(broker: Broker, name: str = "omar/admin", asked: Activation | None = None, **changes: Any) -> object:
    """Confirm an emergency, or nearly."""
    asked = asked or broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    caller = changes.pop("caller", None) or who(broker, name)
    named = {"number": asked.number, "read_hash": asked.content_hash, **changes}
    return broker.activating.confirm(caller, **named)


def ask(broker: Broker, name: str = "olga/admin", minutes: int = 60, **changes: Any) -> object:
    """Ask for an emergency, or nearly."""
    caller = changes.pop("caller", None) or who(broker, name)
    return broker.activating.break_glass(caller, minutes, "fire", **(changes or {"files": texts("evil")}))


def in_two_hats(broker: Broker) -> object:
    broker.use_texts(texts(roles=roles({**PEOPLE, "olga": "operator"})))
    return confirm(broker, "olga")


def a_second_confirmation(broker: Broker) -> object:
    over = emergency(broker, texts("two"))
    return confirm(broker, "olga/admin", over)


def after_another_activation(broker: Broker) -> object:
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    in_force(broker, texts("two"))
    return confirm(broker, asked=asked)


def after_its_time(broker: Broker) -> object:
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    broker.clock.shift = timedelta(minutes=60)
    return confirm(broker, asked=asked)


def before_its_time(broker: Broker) -> object:
    """A clock that is wrong dates it into the future."""
    broker.clock.shift = timedelta(days=300)
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    broker.clock.shift = timedelta(0)
    return confirm(broker, asked=asked)


def chain(broker: Broker) -> object:
    emergency(broker, texts("two"), minutes=240)
    broker.clock.shift = timedelta(minutes=239)
    return ask(broker, minutes=2)


def chain_of_short_ones(broker: Broker) -> object:
    for number in range(4):
        broker.clock.shift = timedelta(minutes=60 * number)
        emergency(broker, texts("two"), minutes=60)
    broker.clock.shift = timedelta(minutes=240)
    return ask(broker, minutes=1)


def chain_of_prepared_ones(broker: Broker) -> object:
    """Two are asked for before either is confirmed."""
    olga = who(broker, "olga/admin")
    asked = [broker.activating.break_glass(olga, 240, "fire", files=texts("evil")) for _ in range(2)]
    emergency(broker, texts("two"), minutes=1)
    return confirm(broker, asked=replace(asked[1], number=asked[1].number))


def second_of_two(broker: Broker) -> object:
    olga = who(broker, "olga/admin")
    first = broker.activating.break_glass(olga, 200, "fire", files=texts("two"))
    second = broker.activating.break_glass(olga, 200, "fire", files=texts("evil"))
    broker.activating.confirm(who(broker, "omar/admin"), first.number, first.content_hash)
    return confirm(broker, asked=second)


def after_the_floor_was_raised(broker: Broker) -> object:
    asked = broker.activating.break_glass(who(broker, "olga/admin"), 60, "fire", files=texts("evil"))
    broker.use_texts(floor(1001))
    return confirm(broker, asked=asked)


def pass_off_a_bundle(broker: Broker) -> object:
    return confirm(broker, read_hash=content_hash(texts("two")))


EMERGENCIES: dict[str, tuple[Callable[[Broker], object], str]] = {
    "alone": (lambda one: confirm(one, "olga/admin"), "policy.four_eyes"),
    "alone, in two hats": (in_two_hats, "policy.four_eyes"),
    "with an approver": (lambda one: confirm(one, "ben/admin"), "caller.role"),
    "with a token": (lambda one: confirm(one, caller=by_token(one, "omar/admin")), "caller.not_a_person"),
    "with a bundle that was not read": (pass_off_a_bundle, "policy.stale"),
    "that was confirmed before": (a_second_confirmation, "policy.nothing_to_confirm"),
    "that there is not": (lambda one: confirm(one, number=7), "policy.nothing_to_confirm"),
    "when another bundle came meanwhile": (after_another_activation, "policy.stale"),
    "when its time is over": (after_its_time, "policy.emergency_over"),
    "when its time has not come": (before_its_time, "policy.emergency_over"),
    "below a floor that was raised": (after_the_floor_was_raised, "policy.privileged"),
    "before the one that was confirmed": (chain_of_prepared_ones, "policy.stale"),
    "more than is left of the day": (second_of_two, "policy.emergency_spent"),
    "one after the other": (chain, "policy.emergency_spent"),
    "one after the other, in small parts": (chain_of_short_ones, "policy.emergency_spent"),
    "for too long": (lambda one: ask(one, minutes=241), "policy.emergency_life"),
    "for no time": (lambda one: ask(one, minutes=0), "policy.emergency_life"),
    "for less than no time": (lambda one: ask(one, minutes=-60), "policy.emergency_life"),
    "as an approver": (lambda one: ask(one, "ben/admin"), "caller.role"),
    "as an author": (lambda one: ask(one, "ada/admin"), "caller.role"),
    "by a token": (lambda one: ask(one, caller=by_token(one, "olga/admin")), "caller.not_a_person"),
    "as root on the machine": (
        lambda one: ask(one, caller=one.people.callers.by_socket(0, "root(0)")),
        "caller.not_a_person",
    ),
    "for a bundle that there is not": (lambda one: ask(one, to_hash="0" * 64), "policy.no_bundle"),
    "for system accounts": (lambda one: ask(one, files=floor(1)), "policy.privileged"),
    "for accounts below the floor": (lambda one: ask(one, files=floor(999)), "policy.privileged"),
    "for a denied account": (lambda one: ask(one, files=with_less_denied("slurm")), "policy.privileged"),
    "for a denied group": (lambda one: ask(one, files=with_less_denied("wheel")), "policy.privileged"),
    "for no bundle": (lambda one: ask(one, to_hash=None), "policy.which_bundle"),
    "for two bundles": (lambda one: ask(one, to_hash=hash_now(one), files=texts("evil")), "policy.which_bundle"),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("attack", "code"), EMERGENCIES.values(), ids=EMERGENCIES.keys())
def test_nobody_breaks_the_glass(broker: Broker, attack: Callable[[Broker], object], code: str) -> None:
    error = refused(lambda: attack(broker))
    assert error.code == code
    (record,) = broker.records(reference=error.reference)
    assert (record["type"], record["phase"]) == ("policy", "denied")
    assert hash_now(broker) != content_hash(texts("evil"))


@pytest.mark.threat("T40")
def test_an_emergency_makes_nobody_an_author_or_approver(broker: Broker) -> None:
    """Two operators make themselves author and approver, and would stay it."""
    evil = {**PEOPLE, "olga/admin": "operator author", "omar/admin": "operator approver"}
    emergency(broker, texts("two", roles=roles(evil)))
    assert who(broker, "olga/admin").roles == {Role.OPERATOR}
    assert refused(lambda: draft(broker, texts("evil"), "olga/admin")).code == "caller.role"
    ours = approved(broker)
    assert ours.base_number == 0
    # And whoever may ends it: what is approved comes into force over it.
    activate(broker, ours)
    assert hash_now(broker) == ours.content_hash


@pytest.mark.threat("T40")
def test_an_emergency_that_is_over_does_not_come_back_with_the_clock(broker: Broker, tmp_path: Path) -> None:
    before = hash_now(broker)
    emergency(broker, texts("two"), minutes=60)
    broker.clock.shift = timedelta(minutes=61)
    assert hash_now(broker) == before
    broker.clock.shift = timedelta(0)
    assert hash_now(broker) == before
    # A broker that was started again knows it from what is on record.
    fresh = ActivePolicy(broker.policies, broker.register, broker.ledger, broker.clock)
    assert fresh.now().content_hash == content_hash(texts("two"))
    broker.ledger._clock = lambda: broker.clock() + timedelta(minutes=61)
    refused(lambda: draft(broker, {}, "mallory"))
    assert fresh.now().content_hash == before


def test_an_emergency_is_ended_by_going_back(broker: Broker) -> None:
    first = in_force(broker, texts("one")).content_hash
    emergency(broker, texts("two"))
    assert hash_now(broker) == content_hash(texts("two"))
    broker.activating.roll_back(who(broker, "ben/admin"), first, "it is over")
    assert hash_now(broker) == first


def change_once(broker: Broker, *every: dict[str, str]) -> None:
    """Bring a bundle into force between decision and intent, each time that somebody decides."""
    left = list(every)
    lookup = broker.directory.lookup

    def changing(name: str) -> Any:
        if left:
            in_force(broker, left.pop(0))
        return lookup(name)

    broker.directory.lookup = changing  # type: ignore[method-assign]


@pytest.mark.threat("T48")
def test_nobody_is_let_in_by_a_policy_that_is_no_longer_in_force(broker: Broker) -> None:
    change_once(broker, without_alice())
    error = refused(lambda: admit(broker))
    assert error.code == "account.not_mapped"
    assert broker.impersonator.asked == []
    assert broker.records(type="admission", phase="intent") == []
    (record,) = broker.records(type="admission")
    assert record["basis"]["bundle_hash"] == content_hash(without_alice())


@pytest.mark.threat("T48")
def test_who_is_let_in_by_the_new_policy_too_is_let_in_by_it(broker: Broker) -> None:
    change_once(broker, texts("two"))
    assert admit(broker).grant.bundle_hash == content_hash(texts("two"))
    assert len(broker.records(type="admission", phase="intent")) == 1


@pytest.mark.threat("T48")
def test_nobody_is_let_in_while_policy_changes_again_and_again(broker: Broker) -> None:
    change_once(broker, texts("two"), texts("three"))
    error = refused(lambda: admit(broker))
    assert (error.code, type(error)) == ("policy.changed_twice", Conflict)
    assert broker.impersonator.asked == []
    (record,) = broker.records(type="admission")
    assert (record["phase"], record["code"]) == ("denied", "policy.changed_twice")
    assert admit(broker, 302).grant.bundle_hash == content_hash(texts("three"))


@pytest.mark.threat("T48")
def test_nobody_is_let_in_by_an_emergency_that_ended_meanwhile(broker: Broker) -> None:
    before = hash_now(broker)
    emergency(broker, texts("two"), minutes=30)
    lookup = broker.directory.lookup

    def late(name: str) -> Any:
        broker.clock.shift = timedelta(minutes=30)
        return lookup(name)

    broker.directory.lookup = late  # type: ignore[method-assign]
    grant = admit(broker).grant
    assert (grant.bundle_hash, "emergency" in grant.reason) == (before, False)


def test_a_run_in_flight_keeps_what_it_was_granted_and_is_listed(broker: Broker) -> None:
    admitted = admit(broker)
    vic = who(broker, "vic")
    assert broker.reading.impact(vic, None) == (admitted.grant.bundle_hash, ())
    one = approved(broker, without_alice())
    named, runs = broker.reading.impact(vic, one.content_hash)
    assert (named, [(run.run_id, run.account, run.code) for run in runs]) == (
        one.content_hash,
        [(admitted.run_id, "alice", "account.not_mapped")],
    )
    activate(broker, one)
    assert broker.reading.impact(vic, None)[1] == runs
    bundle = broker.tickets.for_run(admitted.run_id, admitted.session, Use.SSH)
    assert bundle.principal == "alice@REALM.TEST"
    assert refused(lambda: admit(broker, 302)).code == "account.not_mapped"


def test_tickets_are_asked_for_services_of_the_policy_in_force_and_of_runs_in_flight(broker: Broker) -> None:
    seal = GrantSeal(Seal(b"s" * 32))
    listed = ListedTargets(broker.active.clusters, broker.ledger, seal, broker.clock)
    every = texts()
    (old,) = {one.login_host for one in broker.active.clusters()}
    new = every["clusters.toml"].replace(old, "login2.realm.test")
    assert (f"host/{old}" in listed, "host/login2.realm.test" in listed) == (True, False)
    admit(broker)
    in_force(broker, every | {"clusters.toml": new})
    assert (f"host/{old}" in listed, "host/login2.realm.test" in listed) == (True, True)
    forged = ListedTargets(broker.active.clusters, broker.ledger, GrantSeal(Seal(b"t" * 32)), broker.clock)
    assert f"host/{old}" not in forged
    broker.clock.shift = timedelta(days=2)
    assert f"host/{old}" not in listed


def test_another_broker_knows_at_once(
    broker: Broker, database: str, signing_key: RSAPrivateKey, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    other = Broker(database, signing_key, tmp_path / "b")
    other.use_texts(texts())
    assert hash_now(other) == hash_now(broker)
    for mark in ("one", "two"):
        in_force(broker, texts(mark))
        assert hash_now(other) == content_hash(texts(mark))
    assert other.admission.admit(other.evidence()).grant.bundle_hash == content_hash(texts("two"))
    emergency(other, texts("three"), minutes=1)
    assert hash_now(broker) == content_hash(texts("three"))
    other.engine.dispose()


@pytest.mark.threat("T40")
def test_nobody_without_a_role_reads_policy(broker: Broker) -> None:
    one, mallory = draft(broker), who(broker, "mallory")
    reading = broker.reading
    questions: list[Callable[[], object]] = [
        lambda: reading.proposals(mallory),
        lambda: reading.proposal(mallory, one.proposal_id),
        lambda: reading.bundle(mallory, one.content_hash),
        lambda: reading.in_force(mallory),
        lambda: reading.history(mallory),
        lambda: reading.impact(mallory, None),
    ]
    assert {refused(question).code for question in questions} == {"caller.role"}


@pytest.mark.threat("T40")
def test_nobody_is_shown_other_files_than_they_would_approve(broker: Broker) -> None:
    one = submitted(broker, texts("evil"))
    with broker.engine.begin() as connection:
        statement = text("UPDATE bundles SET files = :files WHERE content_hash = :hash")
        connection.execute(statement, {"files": json.dumps(texts("two")), "hash": one.content_hash})
    ben = who(broker, "ben/admin")
    assert refused(lambda: broker.reading.proposal(ben, one.proposal_id)).code == "policy.content"
    assert refused(lambda: broker.reading.bundle(ben, one.content_hash)).code == "policy.content"


@pytest.mark.parametrize(
    ("principal", "person"),
    [
        ("alice@REALM.TEST", "alice@realm.test"),
        ("alice/admin@REALM.TEST", "alice@realm.test"),
        ("Alice@REALM.TEST", "alice@realm.test"),
        ("alice@OTHER.TEST", "alice@other.test"),
        ("local:root(0)", "@local:root(0)"),
    ],
)
def test_a_person_is_one_by_whatever_principal(principal: str, person: str) -> None:
    assert person_of(principal) == person


def ask_broker(client: BrokerClient, name: str, op: str, data: bytes = b"", **fields: Any) -> Any:
    """Ask as web does for somebody."""
    result, _ = client.ask_for(op, data=data, authorization=f"Negotiate {name}@REALM.TEST", **fields)
    return result


def as_data(files: dict[str, str]) -> bytes:
    """Files as they travel."""
    return json.dumps(files).encode()


def test_the_whole_way_over_the_brokers_socket(broker: Broker, client: BrokerClient) -> None:
    files = texts("one")
    one = ask_broker(client, "ada/admin", "policy_propose", as_data(files), title="more nodes")["proposal"]
    named = {"proposal_id": one["proposal_id"]}
    one = ask_broker(client, "ada/admin", "policy_rewrite", as_data(files), version=1, **named)["proposal"]
    one = ask_broker(client, "ada/admin", "policy_submit", version=2, **named)["proposal"]
    assert (one["state"], one["version"], one["decided_by"]) == ("submitted", 3, None)
    read = ask_broker(client, "ben/admin", "policy_proposals", **named)
    assert (read["proposal"], read["files"]) == (one, files)
    decision = {"content_hash": one["content_hash"], "approve": True, "reason": "read it"}
    ask_broker(client, "ben/admin", "policy_decide", version=3, **named, **decision)
    activation = ask_broker(client, "olga/admin", "policy_activate", version=4, reason="as agreed", **named)
    assert activation["activation"]["kind"] == "activate"
    active = ask_broker(client, "vic", "policy_active")
    assert (active["active"]["content_hash"], active["active"]["number"]) == (one["content_hash"], 1)
    assert active["files"] == files
    first = one["base_hash"]
    assert ask_broker(client, "vic", "policy_bundle", content_hash=first)["files"] == texts()
    ask_broker(client, "olga/admin", "policy_roll_back", content_hash=first, reason="too slow")
    asked = ask_broker(client, "olga/admin", "policy_break_glass", as_data(texts("two")), minutes=30, reason="fire")[
        "activation"
    ]
    ask_broker(client, "omar/admin", "policy_confirm", number=3, content_hash=asked["content_hash"])
    history = ask_broker(client, "vic", "policy_history")
    assert [one["kind"] for one in history["activations"]] == ["break_glass", "roll_back", "activate"]
    assert history["in_force"] == 3
    kept = ask_broker(client, "olga/admin", "policy_break_glass", content_hash=first, minutes=30, reason="fire")
    assert kept["activation"]["second"] is None
    assert ask_broker(client, "vic", "policy_impact") == {"content_hash": asked["content_hash"], "runs": []}
    (only,) = ask_broker(client, "vic", "policy_proposals")["proposals"]
    assert only["state"] == "activated"
    second = ask_broker(client, "ada/admin", "policy_propose", b"{}", title="nothing")["proposal"]
    gone = ask_broker(client, "ada/admin", "policy_withdraw", proposal_id=second["proposal_id"], version=1)
    assert gone["proposal"]["state"] == "withdrawn"


def test_the_largest_bundle_fits_a_frame_both_ways(broker: Broker, client: BrokerClient) -> None:
    line = "# " + "é" * 60 + '"\\\n'
    files = texts() | {"people.cedar": ""}
    files["limits.toml"] = line * ((MAX_BUNDLE_BYTES - 100_000) // len(line.encode()))
    data = json.dumps(files, ensure_ascii=False).encode()
    one = ask_broker(client, "ada/admin", "policy_propose", data, title="large")["proposal"]
    assert ask_broker(client, "vic", "policy_proposals", proposal_id=one["proposal_id"])["files"] == files


@pytest.mark.parametrize(
    "data",
    [b"[]", b"{", b'{"a": 1}', b'{"limits.toml": "a", "limits.toml": "b"}', b"\xff", b"null", b"[" * 100_000],
)
def test_no_files_are_taken_from_what_is_no_object_of_texts(client: BrokerClient, broker: Broker, data: bytes) -> None:
    error = refused(lambda: ask_broker(client, "ada/admin", "policy_propose", data, title="x"))
    assert error.code == "policy.files"


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("policy_propose", {"title": 1}),
        ("policy_propose", {"title": "x", "data": "text"}),
        ("policy_submit", {"proposal_id": "x", "version": "1"}),
        ("policy_submit", {"proposal_id": "x", "version": True}),
        ("policy_decide", {"proposal_id": "x", "version": 1, "content_hash": "y", "reason": "z", "approve": "yes"}),
        ("policy_confirm", {"number": 1.0, "content_hash": "x"}),
    ],
)
def test_a_request_that_web_would_not_send_is_a_defect(client: BrokerClient, op: str, fields: dict[str, Any]) -> None:
    data = b"{}" if op == "policy_propose" and "data" not in fields else b""
    asked = {name: value for name, value in fields.items() if name != "data"}
    error = refused(lambda: client.ask(op, data, authorization="Negotiate ada/admin@REALM.TEST", **asked))
    assert isinstance(error, BridgeError)
    assert error.code == "broker.malformed"
