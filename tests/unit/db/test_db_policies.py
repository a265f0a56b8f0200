"""Bundles, proposals and activations on both databases: what they refuse by themselves, and people who race."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import CheckConstraint, Engine, insert, inspect, literal_column, text, update
from sqlalchemy.exc import DatabaseError

from bridge.active import ActivePolicy
from bridge.audit.ledger import Tx
from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.db.schema import activations, bundles, metadata, proposals
from bridge.errors import BridgeError, Conflict, Defect, NotFound
from bridge.people.activating import ActivationDesk
from bridge.people.acts import Acts
from bridge.people.caller import Caller, Method
from bridge.people.policies import PolicyDesk
from bridge.people.policy_acts import PolicyActs
from bridge.policy.files import content_hash, read_files
from bridge.policy.roles import Role
from bridge.proposals import Activation, ActivationKind, Proposal, ProposalState
from bridge.register import Register, RegisterHead, edited
from bridge.seal import Seal
from bridge.sealed import SealedRegister
from bridge.sealmark import RevisionMark
from tests.register_example import (
    ADA,
    BEN,
    CONTENT,
    NOW,
    OLGA,
    OMAR,
    activation,
    broken_glass,
    consent,
    link,
    proposal,
    switch,
)

POLICIES = Path(__file__).parents[3] / "policies"
FILES = {"limits.toml": '# ünïcode\n\t"quoted\\"\n', "cases/a.toml": ""}
HASH = CONTENT


def put(ledger: SqlLedger, *rows: Proposal | Activation) -> None:
    """Store rows and the bundle, in one transaction that is sealed in no good way."""
    with ledger.begin() as tx:
        tx.keep_bundle(HASH, FILES, ADA, NOW)
        for row in rows:
            put_one(tx, row)
        tx.set_register_head(RegisterHead(tx.register_head().revision + 1, b"seal"))


def put_one(tx: Tx, row: Proposal | Activation) -> None:
    """Store a row of either kind."""
    if isinstance(row, Proposal):
        tx.put_proposal(row)
    else:
        tx.put_activation(row)


def stored(ledger: SqlLedger) -> Register:
    """The register as it stands."""
    with ledger.read() as view:
        return view.register()


def test_what_is_put_comes_back_in_order_and_as_it_was_put(ledger: SqlLedger) -> None:
    later = proposal("A", created_at=NOW + timedelta(seconds=1), state=ProposalState.ACTIVATED, activated_by=OLGA)
    first = proposal("B", state=ProposalState.DRAFT, decided_by=None, decided_at=None, reason="")
    rows: list[Proposal | Activation] = [later, first, broken_glass(12), activation(2, proposal_id="A")]
    before = stored(ledger)
    with ledger.begin() as tx:
        tx.keep_bundle(HASH, FILES, ADA, NOW)
        for row in rows:
            put_one(tx, row)
        tx.set_register_head(RegisterHead(1, b"seal"))
        assert edited(before, tx.edits()) == tx.register()
    found = stored(ledger)
    assert found == Register(1, proposals=(first, later), activations=(rows[3], rows[2]))  # type: ignore[arg-type]
    assert found.proposal("A") == later
    assert found.proposal("C") is None
    changed = replace(first, title="fewer nodes", version=4)
    put(ledger, changed)
    assert stored(ledger).proposals == (changed, later)


def test_a_bundle_is_kept_once_and_for_good(ledger: SqlLedger) -> None:
    for by in (ADA, BEN):
        with ledger.begin() as tx:
            tx.keep_bundle(HASH, FILES, by, NOW)
    with ledger.begin() as tx:
        tx.keep_bundle(HASH, {"limits.toml": "evil"}, BEN, NOW)
    with ledger.read() as view:
        assert view.bundle_files(HASH) == FILES
        with pytest.raises(NotFound, match=r"policy\.no_bundle"):
            view.bundle_files("f" * 64)


@pytest.mark.parametrize("files", ["{", "[]", '{"a": 1}', "[" * 5000, '"text"'])
def test_a_bundle_that_no_bridge_wrote_is_a_defect_and_not_a_crash(
    ledger: SqlLedger, engine: Engine, files: str
) -> None:
    with engine.begin() as connection:
        row = {"content_hash": HASH, "files": files, "size": 1, "created_at": NOW, "created_by": ADA}
        connection.execute(insert(bundles), row)
    with ledger.read() as view, pytest.raises(Defect, match=r"policy\.content"):
        view.bundle_files(HASH)


REFUSED: Mapping[str, Proposal | Activation] = {
    "approved by its author": proposal(decided_by=ADA),
    "activated by its author's approval": proposal(state=ProposalState.ACTIVATED, decided_by=ADA),
    "rejected by its author": proposal(state=ProposalState.REJECTED, decided_by=ADA),
    "approved by nobody": proposal(decided_by=None),
    "activated, approved by nobody": proposal(state=ProposalState.ACTIVATED, decided_by=None),
    "approved at no time": proposal(decided_at=None),
    "submitted, and put in force by somebody": proposal(state=ProposalState.SUBMITTED, activated_by=OLGA),
    "of a bundle that is not kept": proposal(content_hash="f" * 64),
    "of no version": proposal(version=0),
    "an emergency confirmed by who asked": broken_glass(second=OLGA),
    "an emergency of more than four hours": broken_glass(ends_at=NOW + timedelta(hours=4, microseconds=1)),
    "an emergency of no end": broken_glass(ends_at=None),
    "an emergency that ended before": broken_glass(ends_at=NOW),
    "an emergency of an approved proposal": broken_glass(proposal_id="PROP-0000-0009"),
    "an activation without a proposal": activation(proposal_id=None),
    "an activation that ends": activation(proposal_id="PROP-0000-0009", ends_at=NOW + timedelta(hours=1)),
    "an activation with a second": activation(proposal_id="PROP-0000-0009", second=OMAR),
    "an activation of a proposal that there is not": activation(proposal_id="PROP-0000-0008"),
    "a second activation of a proposal": activation(8, proposal_id="PROP-0000-0009"),
    "a rollback with a proposal": activation(kind=ActivationKind.ROLL_BACK, proposal_id="PROP-0000-0009"),
    "a number below the first": activation(0, kind=ActivationKind.ROLL_BACK, proposal_id=None),
    "a bundle that is not kept": activation(kind=ActivationKind.ROLL_BACK, proposal_id=None, content_hash="f" * 64),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_the_database_itself_refuses(ledger: SqlLedger, row: Proposal | Activation) -> None:
    put(ledger, proposal("PROP-0000-0009"), activation(9, proposal_id="PROP-0000-0009"))
    before = stored(ledger)
    with pytest.raises(Defect, match=r"db\.integrity"):
        put(ledger, row)
    assert stored(ledger) == before


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("proposals", "state", "'APPROVED'"),
        ("proposals", "state", "NULL"),
        ("proposals", "base_number", "-1"),
        ("proposals", "author", "decided_by"),
        ("proposals", "content_hash", "'none'"),
        ("activations", "kind", "'by hand'"),
        ("activations", "kind", "'break_glass'"),
        ("activations", "proposal_id", "NULL"),
        ("bundles", "content_hash", "'short'"),
        ("bundles", "files", "NULL"),
    ],
)
def test_the_database_itself_refuses_what_makes_no_sense(
    ledger: SqlLedger, engine: Engine, table: str, column: str, value: str
) -> None:
    put(ledger, proposal(), activation())
    with pytest.raises(DatabaseError), engine.begin() as connection:
        connection.execute(update(metadata.tables[table]).values({column: literal_column(value)}))


def test_every_state_and_kind_that_the_code_knows_is_one_that_the_database_knows(ledger: SqlLedger) -> None:
    every = [proposal(f"P-{state}", state=state) for state in ProposalState]
    kinds = [activation(1, proposal_id="P-activated"), broken_glass(2)]
    kinds.append(activation(3, kind=ActivationKind.ROLL_BACK, proposal_id=None))
    put(ledger, *every, *kinds)
    assert {one.state for one in stored(ledger).proposals} == set(ProposalState)
    assert {one.kind for one in stored(ledger).activations} == set(ActivationKind)


@pytest.mark.parametrize("row", [proposal(), broken_glass()], ids=["proposal", "activation"])
def test_a_change_that_nobody_sealed_is_not_stored(ledger: SqlLedger, row: Proposal | Activation) -> None:
    with ledger.begin() as tx:
        tx.keep_bundle(HASH, FILES, ADA, NOW)
    with pytest.raises(Defect, match=r"register\.unsealed"), ledger.begin() as tx:
        put_one(tx, row)
    assert stored(ledger) == Register(0)


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("table", "column"), [(proposals, "state"), (activations, "kind")])
def test_rows_that_no_bridge_wrote_are_a_defect_and_not_a_crash(
    ledger: SqlLedger, engine: Engine, table: Any, column: str
) -> None:
    put(ledger, proposal(), activation())
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"ALTER TABLE {table.name} DROP CONSTRAINT ck_{table.name}_{column}"))
            connection.execute(text("ALTER TABLE activations DROP CONSTRAINT ck_activations_four_hours"))
        else:
            connection.execute(text("PRAGMA ignore_check_constraints = ON"))
        connection.execute(update(table).values({column: "by hand"}))
    with pytest.raises(Defect, match=r"register\.broken"):
        stored(ledger)


def test_the_migration_has_every_constraint_of_the_schema(engine: Engine) -> None:
    for name in ("bundles", "proposals", "activations"):
        ours = {one.name for one in metadata.tables[name].constraints if isinstance(one, CheckConstraint)}
        assert {one["name"] for one in inspect(engine).get_check_constraints(name)} == ours
    assert [one["name"] for one in inspect(engine).get_unique_constraints("activations")] == [
        "uq_activations_proposal_id"
    ]


@dataclass(frozen=True, slots=True)
class Site:
    """A broker's desks over the database."""

    register: SealedRegister
    active: ActivePolicy
    proposing: PolicyDesk
    activating: ActivationDesk

    def audited(self, act: str) -> int:
        """How many records of an act there are."""
        with self.register._ledger.read() as view:
            return sum(f'"act":"{act}"'.encode() in one.leaf for one in view.entries())


Start = Callable[[str], Site]
ROLES = {ADA: "author", BEN: "approver", "cyd/admin@REALM.TEST": "approver", OLGA: "operator", OMAR: "operator"}


@pytest.fixture
def start(url: str, engine: Engine, tmp_path: Path) -> Iterator[Start]:
    """Starts a broker of a name on the migrated database."""
    engines = []
    directory = tmp_path / "policies"
    for name, content in site_files("").items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def start(name: str) -> Site:
        engines.append(open_database(url))
        ledger = SqlLedger(engines[-1], Writer.new(name), clock)
        register = SealedRegister(ledger, Seal(b"k" * 32), RevisionMark(tmp_path / f"{name}.mark"))
        active = ActivePolicy(directory, register, ledger, clock)
        acts = PolicyActs(register, Acts(ledger), active, clock)
        return Site(register, active, PolicyDesk(acts), ActivationDesk(acts))

    yield start
    for one in engines:
        one.dispose()


def clock() -> datetime:
    """The moment."""
    return NOW


def site_files(mark: str) -> dict[str, str]:
    """The shipped policies with people, and a remark."""
    rows = [f'[[member]]\nprincipal = "{who}"\nroles = ["{role}"]\n' for who, role in ROLES.items()]
    return {**read_files(POLICIES), "roles.toml": f"# {mark}\n" + "".join(rows)}


def who(name: str) -> Caller:
    """Somebody with a ticket for this very request."""
    return Caller(name, None, frozenset({Role(ROLES[name])}), method=Method.NEGOTIATE, bound=True)


def submitted(site: Site, mark: str = "one") -> Proposal:
    """A proposal of ada's before the approvers."""
    one = site.proposing.propose(who(ADA), mark, site_files(mark))
    return site.proposing.submit(who(ADA), one.proposal_id, 1)


def approve(site: Site, one: Proposal, name: str = BEN) -> Proposal:
    """Have somebody approve it."""
    return site.proposing.decide(
        who(name), one.proposal_id, one.version, one.content_hash, approve=True, reason="read it"
    )


def together(*jobs: Callable[[], object]) -> list[BaseException | None]:
    """Begin jobs at the same time, and wait for them; what each raised."""
    gate = threading.Barrier(len(jobs))
    outcomes: list[BaseException | None] = [None] * len(jobs)

    def run(number: int, job: Callable[[], object]) -> None:
        gate.wait(30)
        try:
            job()
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=one) for one in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return outcomes


def one_won(outcomes: list[BaseException | None], *codes: str) -> None:
    """That exactly one succeeded, and every other was told so."""
    assert outcomes.count(None) == 1, outcomes
    for error in outcomes:
        assert error is None or (isinstance(error, Conflict) and error.code in codes and error.reference), error


@pytest.mark.threat("T40")
def test_two_approvers_who_race_do_not_both_decide(start: Start) -> None:
    brokers = [start("a"), start("b")]
    one = submitted(brokers[0])
    outcomes = together(
        *(
            lambda site=site, name=name: approve(site, one, name)
            for site, name in zip(brokers, [BEN, "cyd/admin@REALM.TEST"], strict=True)
        ),
        lambda: brokers[0].proposing.decide(
            who(BEN), one.proposal_id, one.version, one.content_hash, approve=False, reason="no"
        ),
    )
    one_won(outcomes, "policy.changed")
    (found,) = start("new").register.read().proposals
    assert found.version == 3
    assert brokers[0].audited("approved") + brokers[0].audited("rejected") == 1
    assert brokers[0].audited("approve") + brokers[0].audited("reject") == 2


@pytest.mark.threat("T40")
@pytest.mark.parametrize("times", range(3))
def test_an_approval_and_an_edit_that_race_never_approve_the_edit(start: Start, times: int) -> None:
    brokers = [start("a"), start("b")]
    one = submitted(brokers[0], f"good {times}")
    outcomes = together(
        lambda: approve(brokers[0], one),
        lambda: brokers[1].proposing.rewrite(who(ADA), one.proposal_id, one.version, site_files("evil")),
    )
    one_won(outcomes, "policy.changed")
    found = brokers[0].register.read().proposal(one.proposal_id)
    assert found is not None
    assert (found.state is ProposalState.APPROVED) == (found.content_hash == one.content_hash)


@pytest.mark.threat("T40")
def test_an_approval_is_activated_once_however_many_try(start: Start) -> None:
    brokers = [start("a"), start("b")]
    one = approve(brokers[0], submitted(brokers[0]))

    def activate(site: Site, name: str) -> Activation:
        return site.activating.activate(who(name), one.proposal_id, one.version, "as agreed")

    jobs = [lambda site=site, name=name: activate(site, name) for site in brokers for name in (OLGA, BEN)]
    one_won(together(*jobs), "policy.changed", "policy.state")
    register = start("new").register.read()
    assert [(done.number, done.proposal_id) for done in register.activations] == [(1, one.proposal_id)]


@pytest.mark.threat("T40")
def test_two_proposals_on_one_base_do_not_both_come_into_force(start: Start) -> None:
    brokers = [start("a"), start("b")]
    every = [approve(brokers[0], submitted(brokers[0], mark)) for mark in ("one", "two")]
    outcomes = together(
        *(
            lambda site=site, one=one: site.activating.activate(who(OLGA), one.proposal_id, one.version, "now")
            for site, one in zip(brokers, every, strict=True)
        )
    )
    one_won(outcomes, "policy.stale")
    (done,) = brokers[0].register.read().activations
    for site in (*brokers, start("new")):
        assert site.active.now().content_hash == done.content_hash


@pytest.mark.threat("T40")
def test_two_emergencies_that_race_get_no_more_than_the_day_has(start: Start) -> None:
    brokers = [start("a"), start("b")]
    asked = [
        brokers[0].activating.break_glass(who(OLGA), 200, "fire", files=site_files(mark)) for mark in ("one", "two")
    ]
    outcomes = together(
        *(
            lambda site=site, one=one: site.activating.confirm(who(OMAR), one.number, one.content_hash)
            for site, one in zip(brokers, asked, strict=True)
        )
    )
    one_won(outcomes, "policy.emergency_spent", "policy.stale")


def test_what_comes_into_force_is_in_force_for_every_broker_at_once(start: Start) -> None:
    brokers = [start(name) for name in "abc"]
    for number, site in enumerate(brokers, start=1):
        one = approve(site, submitted(site, f"change {number}"))
        site.activating.activate(who(OLGA), one.proposal_id, one.version, "now")
        for other in brokers:
            assert (other.active.now().content_hash, other.active.now().number) == (one.content_hash, number)


def test_readers_never_see_a_policy_half_in_force(start: Start) -> None:
    """While bundles come into force, each answer is one of them, and never an older one than before."""
    site, done = start("a"), threading.Event()
    known = [site.active.now().content_hash, *(content_hash(site_files(f"change {n}")) for n in range(4))]

    def change() -> None:
        try:
            for number in range(4):
                one = approve(site, submitted(site, f"change {number}"))
                site.activating.activate(who(OLGA), one.proposal_id, one.version, "now")
        finally:
            done.set()

    def look(other: Site) -> None:
        seen = 0
        while not done.is_set():
            now = other.active.now()
            assert known[now.number] == now.content_hash
            assert now.number >= seen
            seen = now.number

    readers = [start("b"), start("c"), site]
    assert together(change, *(lambda one=one: look(one) for one in readers)) == [None] * 4
    assert site.active.now().content_hash == known[-1]


@pytest.mark.threat("T49")
def test_an_older_policy_does_not_come_back_with_an_older_database(start: Start, engine: Engine) -> None:
    site = start("a")
    for mark in ("one", "two"):
        one = approve(site, submitted(site, mark))
        site.activating.activate(who(OLGA), one.proposal_id, one.version, "now")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM activations WHERE number = 2"))
        connection.execute(text("UPDATE register_head SET revision = revision - 1"))
    for broker in (site, start("a")):
        with pytest.raises(BridgeError, match=r"register\.rolled_back"):
            broker.active.now()
    with pytest.raises(BridgeError, match=r"register\.broken"):
        start("new").active.now()


def test_a_register_of_before_there_were_proposals_keeps_its_seal(start: Start) -> None:
    site = start("a")
    with site.register.begin() as (tx, _):
        tx.put_link(link())
        tx.put_consent(consent())
        tx.kill(switch())
    with site.register._ledger.begin() as tx:
        tx.keep_bundle(HASH, FILES, ADA, NOW)
    assert start("b").register.read().revision == 1
