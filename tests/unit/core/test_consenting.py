"""Consent: an account's owner decides which projects act as them, at once, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench import ISSUER, Broker, Web, refused, wait_until

from bridge.errors import TokenRefused
from bridge.model import ExternalIdentity, KillScope, PosixAccount, RunState
from bridge.people.callers import Caller
from bridge.people.consenting import MAX_PROJECTS, ConsentAct
from bridge.register import Consent, ConsentMode, LinkMethod, LinkState, ProjectRef
from bridge.runs.killing import KillWatch
from bridge.runs.stopping import Stopper
from bridge.ticketing import Use
from tests.fakes import FakeScript

WATER = ProjectRef(ISSUER, 7)
OTHER = ProjectRef(ISSUER, 8)
ASK_FIRST = "\n[consent]\nask_first = true\n"


def say(broker: Broker, act: ConsentAct, project: ProjectRef | None = None, who: str = "alice@REALM.TEST") -> Consent:
    """An owner says something."""
    return broker.people.consenting.change(broker.caller(who), act, project)


def admit(broker: Broker, job_id: int = 301, **claims: str) -> Any:
    """A job of alice's in project 7, admitted."""
    return broker.admission.admit(broker.evidence(job_id, claims=claims))


@pytest.mark.threat("T16")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([(ConsentAct.STOP, None)], "consent.stopped"),
        ([(ConsentAct.STOP, None), (ConsentAct.ALLOW, WATER)], "consent.stopped"),
        ([(ConsentAct.STOP, None), (ConsentAct.ONLY_LISTED, None), (ConsentAct.ALLOW, WATER)], "consent.stopped"),
        ([(ConsentAct.DENY, WATER)], "consent.denied"),
        ([(ConsentAct.ALLOW, WATER), (ConsentAct.DENY, WATER)], "consent.denied"),
        ([(ConsentAct.ONLY_LISTED, None)], "consent.not_given"),
        ([(ConsentAct.ONLY_LISTED, None), (ConsentAct.ALLOW, OTHER)], "consent.not_given"),
        ([(ConsentAct.ONLY_LISTED, None), (ConsentAct.STOP, None), (ConsentAct.RESUME, None)], "consent.not_given"),
        ([(ConsentAct.ALLOW, WATER)], None),
        ([(ConsentAct.DENY, OTHER)], None),
        ([(ConsentAct.DENY, WATER), (ConsentAct.ALLOW, WATER)], None),
        ([(ConsentAct.ONLY_LISTED, None), (ConsentAct.ALLOW, WATER)], None),
        ([(ConsentAct.STOP, None), (ConsentAct.RESUME, None)], None),
        ([(ConsentAct.ONLY_LISTED, None), (ConsentAct.UNLIST, None)], None),
        ([(ConsentAct.RESUME, None)], None),
    ],
    ids=map(str, range(15)),
)
def test_nothing_runs_as_an_account_against_its_owners_word(
    broker: Broker, words: list[tuple[ConsentAct, ProjectRef | None]], code: str | None
) -> None:
    for act, project in words:
        say(broker, act, project)
    if code is None:
        assert admit(broker).grant.account.name == "alice"
        return
    error = refused(lambda: admit(broker))
    assert error.code == code
    assert broker.impersonator.asked == []
    assert broker.records(type="admission", phase="intent") == []


@pytest.mark.threat("T12")
@pytest.mark.parametrize("denied", [WATER, OTHER])
def test_both_the_codes_project_and_the_one_that_runs_it_need_consent(broker: Broker, denied: ProjectRef) -> None:
    """The guards of the shipped policy stand aside here, so that consent stands alone."""
    texts = dict(broker.policy.bundle.files)
    broker.use_texts({**texts, "guards.cedar": "", "cases/guards.toml": texts["cases/people.toml"]})
    say(broker, ConsentAct.DENY, denied)
    assert refused(lambda: admit(broker, project_id="8", job_project_id="7")).code == "consent.denied"


def test_where_the_site_asks_first_silence_is_no(broker: Broker) -> None:
    broker.use(accounts=ASK_FIRST)
    assert refused(lambda: admit(broker)).code == "consent.not_given"
    say(broker, ConsentAct.ALLOW, WATER)
    assert admit(broker, 302).grant.account.name == "alice"


@pytest.mark.threat("T11")
def test_the_word_of_an_earlier_owner_of_the_name_does_not_let_anybody_in(broker: Broker) -> None:
    broker.use(accounts=ASK_FIRST)
    broker.directory.accounts["alice"] = PosixAccount("alice", 29999, 21001, ("chem",), "/home/alice", "/bin/bash")
    say(broker, ConsentAct.ALLOW, WATER)
    broker.directory.accounts["alice"] = PosixAccount("alice", 20001, 21001, ("chem",), "/home/alice", "/bin/bash")
    assert refused(lambda: admit(broker)).code == "consent.not_given"


@pytest.mark.threat("T16")
@pytest.mark.parametrize(
    ("who", "code"),
    [
        ("bob@REALM.TEST", None),
        ("root@REALM.TEST", None),
        ("alice/admin@REALM.TEST", "caller.no_account"),
        ("alice@EVIL.TEST", "caller.no_account"),
        ("Alice@REALM.TEST", "caller.no_account"),
        ("alice@realm.test", "caller.no_account"),
    ],
)
def test_nobody_else_speaks_for_the_owner(broker: Broker, who: str, code: str | None) -> None:
    say(broker, ConsentAct.STOP)
    if code is None:
        assert say(broker, ConsentAct.RESUME, who=who).account == who.partition("@")[0]
    else:
        assert refused(lambda: say(broker, ConsentAct.RESUME, who=who)).code == code
    assert refused(lambda: admit(broker)).code == "consent.stopped"


def test_without_a_ticket_nothing_is_said(broker: Broker) -> None:
    with pytest.raises(TokenRefused, match=r"negotiate\.required"):
        broker.people.callers.by_negotiate("")
    for uid in (0, 990):
        caller = broker.people.callers.by_socket(uid, "root(0)")
        error = refused(lambda caller=caller: broker.people.consenting.change(caller, ConsentAct.STOP, None))  # type: ignore[misc]
        assert error.code == "caller.no_account"


@pytest.mark.parametrize(
    ("act", "project"),
    [
        (ConsentAct.STOP, WATER),
        (ConsentAct.ALLOW, None),
        (ConsentAct.DENY, None),
        (ConsentAct.ALLOW, ProjectRef("https://evil.test", 7)),
    ],
    ids=map(str, range(4)),
)
def test_what_is_not_clear_is_refused(broker: Broker, act: ConsentAct, project: ProjectRef | None) -> None:
    assert refused(lambda: say(broker, act, project)).code == "consent.project"
    assert broker.register.read().consents == ()


def test_one_owner_can_not_fill_the_register(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.people.consenting.MAX_PROJECTS", 2)
    for number in (1, 2):
        say(broker, ConsentAct.DENY, ProjectRef(ISSUER, number))
    assert refused(lambda: say(broker, ConsentAct.DENY, WATER)).code == "consent.too_many"
    assert MAX_PROJECTS == 1000


def test_the_owner_sees_who_may_act_as_them_and_by_what(broker: Broker) -> None:
    say(broker, ConsentAct.DENY, OTHER)
    standing = broker.people.consenting.show(broker.caller("alice@REALM.TEST"))
    assert (standing.account, standing.uid, standing.ask_first) == ("alice", 20001, False)
    assert standing.rows == ((ISSUER, 101),)
    assert standing.consent is not None
    assert (standing.consent.mode, standing.consent.denied) == (ConsentMode.SITE, (OTHER,))
    (record,) = broker.records(type="consent")
    assert record["detail"] == {
        "act": "deny",
        "by": "alice@REALM.TEST",
        "mode": "site",
        "method": "negotiate",
        "issuer": ISSUER,
        "project_id": 8,
    }


@pytest.mark.threat("T16")
def test_a_stop_ends_what_runs_and_gives_no_more_tickets(broker: Broker, web: Web, cluster: Any) -> None:
    live = web.open(broker.evidence())
    bobs = web.open(broker.evidence(302, 102))
    watch = KillWatch(broker.ledger, web.register, web.runs, Stopper(web.runs), every_seconds=0.01)
    watch.start()
    try:
        say(broker, ConsentAct.STOP)
        wait_until(lambda: live.run.state is RunState.ENDED, "the end of alice's run")
        assert live.stopped is not None
        assert live.stopped.code == "consent.stopped"
        assert bobs.run.state is not RunState.ENDED
    finally:
        watch.stop()
    assert refused(lambda: broker.tickets.for_run(bobs.run.run_id, live.session, Use.LOGIN)).code == "session.invalid"


@pytest.mark.threat("T16")
def test_no_stage_starts_after_a_stop(broker: Broker, web: Web, cluster: Any) -> None:
    live = web.open(broker.evidence())
    cluster.scripts.append(FakeScript())
    say(broker, ConsentAct.STOP)
    assert refused(lambda: web.runs.start_stage(live, "1" * 32, "get_sources", b"true")).code == "consent.stopped"


PROVIDER = f"""
[[provider]]
issuer = "{ISSUER}"
name = "ldapmain"
account = "uid=([a-z0-9_-]+),ou=people,dc=realm,dc=test"
"""
DAVE = PosixAccount("dave", 20044, 21001, ("dave",), "/home/dave", "/bin/bash")


def logins(*pairs: tuple[str, str]) -> tuple[ExternalIdentity, ...]:
    """What GitLab signs of a person's logins."""
    return tuple(ExternalIdentity(*pair) for pair in pairs)


def of_dave(broker: Broker, job_id: int, extern_uid: str, provider: str = "ldapmain") -> Any:
    """A job of GitLab user 110, whose token has this login."""
    claims = {"user_identities": [{"provider": provider, "extern_uid": extern_uid}]}
    return broker.admission.admit(broker.evidence(job_id, 110, claims=claims))


@pytest.fixture
def with_provider(broker: Broker) -> Broker:
    """A site that trusts its LDAP's logins."""
    broker.use(accounts=PROVIDER)
    broker.directory.accounts["dave"] = DAVE
    return broker


@pytest.mark.threat("T11")
def test_a_trusted_login_pins_the_uid_at_its_first_use(with_provider: Broker) -> None:
    broker, dn = with_provider, "uid=dave,ou=people,dc=realm,dc=test"
    grant = of_dave(broker, 301, dn).grant
    (link,) = broker.register.read().links
    assert (link.account, link.uid, link.method, link.state) == ("dave", 20044, LinkMethod.PROVIDER, LinkState.ACTIVE)
    assert grant.link_id == link.link_id
    assert of_dave(broker, 302, dn).grant.link_id == link.link_id
    broker.directory.accounts["dave"] = PosixAccount("dave", 20045, 21001, ("dave",), "/home/dave", "/bin/bash")
    assert refused(lambda: of_dave(broker, 303, dn)).code == "account.uid_changed"


@pytest.mark.threat("T11")
@pytest.mark.parametrize(
    ("provider", "extern_uid", "code"),
    [
        ("saml", "uid=dave,ou=people,dc=realm,dc=test", "account.not_mapped"),
        ("LDAPmain", "uid=dave,ou=people,dc=realm,dc=test", "account.not_mapped"),
        ("ldapmain", "uid=dave,ou=guests,dc=realm,dc=test", "account.not_mapped"),
        ("ldapmain", "uid=dave,ou=people,dc=realm,dc=test,dc=evil", "account.not_mapped"),
        ("ldapmain", "x,uid=dave,ou=people,dc=realm,dc=test", "account.not_mapped"),
        ("ldapmain", "uid=dave,ou=people,dc=realm,dc=test\n", "token.claim_malformed"),
        ("ldapmain", "uid=-rf,ou=people,dc=realm,dc=test", "account.not_mapped"),
        ("ldapmain", "uid=root,ou=people,dc=realm,dc=test", "account.privileged"),
        ("ldapmain", "uid=zoe,ou=people,dc=realm,dc=test", "account.unknown"),
    ],
    ids=map(str, range(9)),
)
def test_no_other_login_becomes_an_account(with_provider: Broker, provider: str, extern_uid: str, code: str) -> None:
    assert refused(lambda: of_dave(with_provider, 301, extern_uid, provider)).code == code
    assert with_provider.register.read().links == ()
    assert with_provider.impersonator.asked == []


@pytest.mark.threat("T11")
def test_a_login_that_changes_or_goes_leads_nowhere(with_provider: Broker) -> None:
    broker = with_provider
    of_dave(broker, 301, "uid=dave,ou=people,dc=realm,dc=test")
    assert refused(lambda: of_dave(broker, 302, "uid=bob,ou=people,dc=realm,dc=test")).code == "account.conflict"
    assert refused(lambda: broker.admission.admit(broker.evidence(303, 110))).code == "account.not_mapped"


def test_two_trusted_logins_that_disagree_are_none(with_provider: Broker) -> None:
    rules = with_provider.policy.bundle.accounts
    both = logins(
        ("ldapmain", "uid=dave,ou=people,dc=realm,dc=test"), ("ldapmain", "uid=bob,ou=people,dc=realm,dc=test")
    )
    assert rules.vouched(ISSUER, both) is None
    assert rules.vouched("https://evil.test", both[:1]) is None
    assert rules.vouched(ISSUER, None) is None


def throw(broker: Broker, caller: Caller, **target: Any) -> object:
    """Throw a switch."""
    members: dict[str, Any] = {"issuer": None, "number": None, "account": None} | target
    return broker.people.killing.throw(caller, members.pop("scope"), "r", **members)


KILLERS: dict[str, tuple[Callable[[Broker], Caller], bool, bool]] = {
    "root on the machine": (lambda one: one.people.callers.by_socket(0, "root(0)"), True, True),
    "the service's user": (lambda one: one.people.callers.by_socket(990, "ci-bridge(990)"), True, False),
    "an operator": (lambda one: one.caller("olga/admin@REALM.TEST"), True, True),
    "an approver": (lambda one: one.caller("ben/admin@REALM.TEST"), False, False),
    "anybody": (lambda one: one.caller("alice@REALM.TEST"), False, False),
}
ROLES = """
[[member]]
principal = "olga/admin@REALM.TEST"
roles = ["operator"]
[[member]]
principal = "ben/admin@REALM.TEST"
roles = ["approver", "author", "viewer", "auditor"]
"""


@pytest.mark.threat("T16")
@pytest.mark.parametrize("who", KILLERS)
def test_who_may_not_throw_or_lift_a_switch_does_not(broker: Broker, who: str) -> None:
    broker.use(roles=ROLES)
    find, throws, lifts = KILLERS[who]
    if throws:
        throw(broker, find(broker), scope=KillScope.ALL)
    else:
        assert refused(lambda: throw(broker, find(broker), scope=KillScope.ALL)).code == "caller.role"
        throw(broker, broker.people.callers.by_socket(0, "root(0)"), scope=KillScope.ALL)
    (switch,) = broker.register.read().switches_in_force
    if lifts:
        broker.people.killing.lift(find(broker), switch.switch_id, "over")
        assert admit(broker).attempt == 1
    else:
        assert refused(lambda: broker.people.killing.lift(find(broker), switch.switch_id, "r")).code == "caller.role"
        assert refused(lambda: admit(broker)).code == "killed.all"


@pytest.mark.parametrize(
    "target",
    [
        {"scope": KillScope.USER, "number": 101},
        {"scope": KillScope.USER, "issuer": "https://evil.test", "number": 101},
        {"scope": KillScope.USER, "issuer": ISSUER},
        {"scope": KillScope.USER, "issuer": ISSUER, "number": 0},
        {"scope": KillScope.ACCOUNT},
        {"scope": KillScope.ACCOUNT, "account": ""},
        {"scope": KillScope.ISSUER, "issuer": ISSUER, "number": 5},
        {"scope": KillScope.ALL, "account": "alice"},
    ],
    ids=map(str, range(8)),
)
def test_a_switch_that_would_stop_nobody_is_refused(broker: Broker, target: dict[str, Any]) -> None:
    root = broker.people.callers.by_socket(0, "root(0)")
    assert refused(lambda: throw(broker, root, **target)).code == "kill.target"
    assert broker.register.read().switches == ()


@pytest.mark.threat("T45")
def test_how_a_process_names_itself_can_not_look_like_a_person_or_another_uid(broker: Broker) -> None:
    for name in ("alice@REALM.TEST", "root(0)\nroot(0)", "x" * 200, "", "root(0) and more"):
        assert broker.people.callers.by_socket(990, name).principal == "local:(990)"
