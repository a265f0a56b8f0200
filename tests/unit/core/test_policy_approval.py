"""Nobody approves a bundle but another person with the role, who saw the very content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from bench import Broker, refused
from policy_site import (
    PEOPLE,
    activate,
    approve,
    by_token,
    draft,
    hash_now,
    roles,
    submitted,
    texts,
    who,
)
from policy_steps import admit, decide, rewrite, with_people

from bridge.policy.files import content_hash
from bridge.policy.roles import Role
from bridge.proposals import ProposalState


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


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
