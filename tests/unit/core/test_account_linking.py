"""Account linking: nobody becomes an account whose owner, or two administrators, did not say so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from bench import ISSUER, Broker, refused

from bridge.model import PosixAccount
from bridge.people.callers import Caller
from bridge.people.linking import FLOW_LIFE
from bridge.register import Link, LinkMethod, LinkState
from bridge.ticketing import Use

LINKS = "\n[links]\nself_service = true\nadmin = true\n"
ROLES = """
[[member]]
principal = "ada/admin@REALM.TEST"
roles = ["author", "approver"]
[[member]]
principal = "ben/admin@REALM.TEST"
roles = ["approver", "viewer"]
[[member]]
principal = "olga/admin@REALM.TEST"
roles = ["operator"]
"""
MALLORY = PosixAccount("mallory", 20003, 21003, ("mallory",), "/home/mallory", "/bin/bash")


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """A site with self-service and administrators' links; mallory has an account, and nobody has a row for her."""
    broker.use(accounts=LINKS, roles=ROLES)
    broker.directory.accounts["mallory"] = MALLORY
    return broker


def person(broker: Broker, name: str) -> Caller:
    """Somebody with a ticket."""
    return broker.caller(f"{name}@REALM.TEST")


def begin(broker: Broker, caller: Caller) -> str:
    """Begin a flow; its state."""
    address = broker.people.linking.start(caller, ISSUER)
    return parse_qs(urlsplit(address).query)["state"][0]


def link_self(broker: Broker, name: str, code: str) -> Link:
    """The whole flow of one person."""
    desk, caller = broker.people.linking, person(broker, name)
    found = desk.found(caller, begin(broker, caller), code)
    return desk.confirm(person(broker, name), found.confirmation)


def admit(broker: Broker, user_id: int, job_id: int = 301) -> Any:
    """A job of a GitLab user, admitted."""
    return broker.admission.admit(broker.evidence(job_id, user_id))


def test_who_shows_a_ticket_and_signs_in_at_gitlab_is_linked_and_runs(broker: Broker) -> None:
    assert refused(lambda: admit(broker, 103)).code == "account.not_mapped"
    link = link_self(broker, "mallory", "103:mallory")
    assert (link.user_id, link.account, link.uid, link.method) == (103, "mallory", 20003, LinkMethod.SELF_SERVICE)
    grant = admit(broker, 103).grant
    assert (grant.account.name, grant.link_id) == ("mallory", link.link_id)
    (record,) = broker.records(type="link")
    assert (record["phase"], record["reference"], record["detail"]["act"]) == ("ok", link.link_id, "linked")
    assert record["target"] == {"account": "mallory", "uid": 20003}
    assert "mallory" not in str(record["detail"]["user_id"])


def other_state(broker: Broker) -> object:
    """Mallory sends bob the address of a flow that she began."""
    state = begin(broker, person(broker, "mallory"))
    return broker.people.linking.found(person(broker, "bob"), state, "103:mallory")


def other_confirmation(broker: Broker) -> object:
    """Bob is brought to confirm what mallory found."""
    mallory = person(broker, "mallory")
    found = broker.people.linking.found(mallory, begin(broker, mallory), "103:mallory")
    return broker.people.linking.confirm(person(broker, "bob"), found.confirmation)


def state_as_confirmation(broker: Broker) -> object:
    """A sealed value of one step is taken for another's."""
    mallory = person(broker, "mallory")
    return broker.people.linking.confirm(mallory, begin(broker, mallory))


def late(broker: Broker) -> object:
    """The flow takes too long."""
    mallory = person(broker, "mallory")
    state = begin(broker, mallory)
    broker.clock.shift = FLOW_LIFE + timedelta(seconds=1)
    return broker.people.linking.found(mallory, state, "103:mallory")


def late_confirmation(broker: Broker) -> object:
    """The confirmation comes too late."""
    mallory = person(broker, "mallory")
    found = broker.people.linking.found(mallory, begin(broker, mallory), "103:mallory")
    broker.clock.shift = FLOW_LIFE + timedelta(seconds=1)
    return broker.people.linking.confirm(mallory, found.confirmation)


def code_of_another_flow(broker: Broker) -> object:
    """A code that GitLab gave for a flow of somebody else is put into one's own."""
    mallory = person(broker, "mallory")
    state = begin(broker, mallory)
    broker.sign_in.challenges.clear()
    return broker.people.linking.found(mallory, state, "103:mallory")


def code_twice(broker: Broker) -> object:
    """A code is used a second time."""
    mallory = person(broker, "mallory")
    state = begin(broker, mallory)
    broker.people.linking.found(mallory, state, "103:mallory")
    return broker.people.linking.found(mallory, state, "103:mallory")


def new_owner(broker: Broker) -> object:
    """The account got a new uid between the two steps."""
    mallory = person(broker, "mallory")
    found = broker.people.linking.found(mallory, begin(broker, mallory), "103:mallory")
    broker.directory.accounts["mallory"] = PosixAccount("mallory", 20099, 21003, ("mallory",), "/h", "/bin/bash")
    return broker.people.linking.confirm(mallory, found.confirmation)


def used_confirmation(broker: Broker) -> object:
    """A confirmation is sent again after its link has ended."""
    mallory = person(broker, "mallory")
    found = broker.people.linking.found(mallory, begin(broker, mallory), "103:mallory")
    link = broker.people.linking.confirm(mallory, found.confirmation)
    broker.people.linking.end(mallory, link.link_id, "a mistake")
    return broker.people.linking.confirm(mallory, found.confirmation)


ATTACKS: dict[str, tuple[Callable[[Broker], object], str]] = {
    "a flow that another began": (other_state, "link.foreign"),
    "a confirmation of another": (other_confirmation, "link.foreign"),
    "a state as confirmation": (state_as_confirmation, "flow.invalid"),
    "a garbled state": (
        lambda one: one.people.linking.found(person(one, "mallory"), "e30.AAAA", "1:x"),
        "flow.invalid",
    ),
    "an empty state": (lambda one: one.people.linking.found(person(one, "mallory"), "", "1:x"), "flow.invalid"),
    "a huge state": (lambda one: one.people.linking.found(person(one, "mallory"), "a" * 9999, "1:x"), "flow.invalid"),
    "too late": (late, "flow.expired"),
    "confirmed too late": (late_confirmation, "flow.expired"),
    "a code of another flow": (code_of_another_flow, "oauth.refused"),
    "a code twice": (code_twice, "oauth.refused"),
    "a confirmation again": (used_confirmation, "link.used"),
    "a new owner of the name": (new_owner, "link.foreign"),
    "a GitLab user with a row of somebody": (lambda one: link_self(one, "mallory", "101:alice"), "link.taken"),
    "a GitLab user with this very row": (lambda one: link_self(one, "alice", "101:alice"), "link.exists"),
    "root's ticket": (lambda one: begin(one, person(one, "root")), "account.privileged"),
    "an instance": (lambda one: begin(one, person(one, "mallory/admin")), "caller.no_account"),
    "a host": (lambda one: begin(one, person(one, "host/node1.realm.test")), "caller.no_account"),
    "another realm": (lambda one: begin(one, one.caller("mallory@EVIL.TEST")), "caller.no_account"),
    "a name of no account": (lambda one: begin(one, person(one, "nobody-knows")), "account.unknown"),
    "a GitLab that is not ours": (
        lambda one: one.people.linking.start(person(one, "mallory"), "https://evil.test"),
        "link.issuer",
    ),
}


@pytest.mark.threat("T11")
@pytest.mark.threat("T16")
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_other_way_leads_to_a_link(broker: Broker, attack: str) -> None:
    act, code = ATTACKS[attack]
    error = refused(lambda: act(broker))
    assert error.code == code
    assert broker.register.read().active_link(ISSUER, 103) is None
    denied = broker.records(type="link", phase="denied")[-1]
    assert (denied["code"], denied["reference"]) == (code, error.reference)


@pytest.mark.threat("T11")
def test_without_self_service_nobody_links_themselves_and_old_links_count_no_more(broker: Broker) -> None:
    link_self(broker, "mallory", "103:mallory")
    broker.use(roles=ROLES)
    assert refused(lambda: begin(broker, person(broker, "mallory"))).code == "link.no_self_service"
    assert refused(lambda: admit(broker, 103)).code == "account.not_mapped"


@pytest.mark.threat("T11")
@pytest.mark.parametrize(
    ("account", "code"),
    [
        (PosixAccount("mallory", 20099, 21003, ("mallory",), "/h", "/bin/bash"), "account.uid_changed"),
        (PosixAccount("mallory", 20003, 0, ("root",), "/h", "/bin/bash"), "account.privileged"),
        (PosixAccount("mallory", 20003, 21003, ("mallory", "sudo"), "/h", "/bin/bash"), "account.privileged"),
        (PosixAccount("mallory", 20003, 21003, ("mallory",), "/h", "/usr/sbin/nologin"), "account.no_shell"),
        (None, "account.unknown"),
    ],
)
def test_a_link_does_not_outlive_what_it_was_made_for(broker: Broker, account: PosixAccount | None, code: str) -> None:
    link_self(broker, "mallory", "103:mallory")
    broker.directory.accounts.pop("mallory")
    if account is not None:
        broker.directory.accounts["mallory"] = account
    assert refused(lambda: admit(broker, 103)).code == code
    assert broker.impersonator.asked == []


@pytest.mark.threat("T16")
def test_an_ended_link_admits_nobody_and_gives_no_more_tickets(broker: Broker) -> None:
    link = link_self(broker, "mallory", "103:mallory")
    run = admit(broker, 103)
    broker.people.linking.end(person(broker, "mallory"), link.link_id, "lost my laptop")
    broker.impersonator.asked.clear()
    assert refused(lambda: admit(broker, 103, 302)).code == "account.not_mapped"
    assert refused(lambda: broker.tickets.for_run(run.run_id, run.session, Use.LOGIN)).code == "link.ended"
    assert broker.impersonator.asked == []


@pytest.mark.threat("T50")
def test_a_stranger_learns_of_no_link_and_ends_none(broker: Broker) -> None:
    link = link_self(broker, "mallory", "103:mallory")
    desk, bob = broker.people.linking, person(broker, "bob")
    assert desk.links(bob) == ()
    theirs = refused(lambda: desk.end(bob, link.link_id, "r"))
    none = refused(lambda: desk.end(bob, "AAAA-BBBB-CCCC", "r"))
    assert (theirs.code, theirs.title, theirs.remedy) == (none.code, none.title, none.remedy)
    assert theirs.code == "link.unknown"
    assert [one.state for one in broker.register.read().links] == [LinkState.ACTIVE]


@pytest.mark.threat("T40")
def test_an_administrators_link_counts_only_once_another_has_approved_it(broker: Broker) -> None:
    desk, ada, ben = broker.people.linking, person(broker, "ada/admin"), person(broker, "ben/admin")
    link = desk.propose(ada, ISSUER, 103, "mallory", "asked by phone")
    assert refused(lambda: admit(broker, 103)).code == "account.not_mapped"
    assert refused(lambda: desk.decide(ada, link.link_id, approve=True, reason="r")).code == "link.four_eyes"
    assert refused(lambda: admit(broker, 103, 302)).code == "account.not_mapped"
    approved = desk.decide(ben, link.link_id, approve=True, reason="seen her badge")
    assert (approved.state, approved.decided_by) == (LinkState.ACTIVE, "ben/admin@REALM.TEST")
    assert admit(broker, 103, 303).grant.account.name == "mallory"
    assert refused(lambda: desk.decide(ben, link.link_id, approve=False, reason="r")).code == "link.state"


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    ("who", "act", "code"),
    [
        ("mallory", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "r"), "caller.role"),
        ("ben/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "r"), "caller.role"),
        ("olga/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "r"), "caller.role"),
        ("ada/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "root", "r"), "account.privileged"),
        ("ada/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "-x", "r"), "account.unknown"),
        ("ada/admin", lambda desk, who: desk.propose(who, "https://evil.test", 103, "mallory", "r"), "link.issuer"),
        ("ada/admin", lambda desk, who: desk.propose(who, ISSUER, 101, "mallory", "r"), "link.taken"),
        ("ada/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "  "), "link.reason"),
        ("ada/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "r" * 501), "link.reason"),
        ("olga/admin", lambda desk, who: desk.decide(who, "AAAA-BBBB-CCCC", approve=True, reason="r"), "caller.role"),
        ("ben/admin", lambda desk, who: desk.decide(who, "AAAA-BBBB-CCCC", approve=True, reason="r"), "link.unknown"),
        ("ada", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "r"), "caller.role"),
        ("ADA/admin", lambda desk, who: desk.propose(who, ISSUER, 103, "mallory", "r"), "caller.role"),
    ],
    ids=map(str, range(13)),
)
def test_nobody_without_the_role_or_with_a_wrong_account_makes_a_link(
    broker: Broker, who: str, act: Callable[[Any, Caller], object], code: str
) -> None:
    assert refused(lambda: act(broker.people.linking, person(broker, who))).code == code
    assert broker.register.read().links == ()


@pytest.mark.threat("T40")
def test_an_approval_is_for_the_account_that_was_proposed(broker: Broker) -> None:
    desk = broker.people.linking
    link = desk.propose(person(broker, "ada/admin"), ISSUER, 103, "mallory", "r")
    broker.directory.accounts["mallory"] = PosixAccount("mallory", 20099, 21003, ("mallory",), "/h", "/bin/bash")
    error = refused(lambda: desk.decide(person(broker, "ben/admin"), link.link_id, approve=True, reason="r"))
    assert error.code == "account.uid_changed"
    assert broker.register.read().active_link(ISSUER, 103) is None


@pytest.mark.threat("T11")
def test_a_gitlab_user_with_two_accounts_has_none(broker: Broker) -> None:
    link_self(broker, "mallory", "103:mallory")
    row = f'\n[[account]]\nissuer = "{ISSUER}"\nuser_id = 103\naccount = "bob"\nuid = 20002\n'
    broker.use(accounts=LINKS + row, roles=ROLES)
    assert refused(lambda: admit(broker, 103)).code == "account.conflict"
    assert broker.impersonator.asked == []


@pytest.mark.threat("T48")
def test_a_link_that_ends_between_the_decision_and_the_intent_admits_nobody(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_self(broker, "mallory", "103:mallory")
    decide = type(broker.admission)._decide

    def decide_and_end(*arguments: Any) -> Any:
        decision = decide(*arguments)
        broker.people.linking.end(person(broker, "olga/admin"), link.link_id, "stolen")
        return decision

    monkeypatch.setattr(type(broker.admission), "_decide", decide_and_end)
    assert refused(lambda: admit(broker, 103)).code == "link.ended"
    assert broker.records(type="admission", phase="intent") == []
    assert broker.impersonator.asked == []


def test_one_account_can_not_fill_the_register(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.people.linking.MAX_LINKS", 2)
    for number in range(2):
        link = link_self(broker, "mallory", f"103:m{number}")
        broker.people.linking.end(person(broker, "mallory"), link.link_id, "again")
    assert refused(lambda: link_self(broker, "mallory", "103:m3")).code == "link.too_many"


@pytest.mark.threat("T40")
def test_where_administrators_do_not_link_none_is_proposed_or_approved(broker: Broker) -> None:
    desk, ada, ben = broker.people.linking, person(broker, "ada/admin"), person(broker, "ben/admin")
    link = desk.propose(ada, ISSUER, 103, "mallory", "r")
    broker.use(roles=ROLES)
    assert refused(lambda: desk.propose(ada, ISSUER, 110, "mallory", "r")).code == "link.no_admin_links"
    assert refused(lambda: desk.decide(ben, link.link_id, approve=True, reason="r")).code == "link.no_admin_links"
