"""The register under the broker's seal: a database writer can break it, and change nothing of it.

Attacks are made as web could make them: with plain SQL on the database's file, beside a running broker.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.audit.log import Writer
from bridge.audit.record import Phase, Record, RecordType
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import Defect, Outage
from bridge.proposals import ActivationKind, ProposalState
from bridge.register import ConsentMode, LinkState, ProjectRef, Register, RegisterHead
from bridge.seal import Seal
from bridge.sealed import SealedRegister, digest
from bridge.sealmark import RevisionMark
from tests.migrated import open_migrated
from tests.register_example import (
    ADA,
    CONTENT,
    GITLAB,
    NOW,
    activation,
    admin_link,
    broken_glass,
    consent,
    link,
    proposal,
    switch,
)

KEY = bytes(range(32))
REVOKED = link("LINK-0000-0002", 102, account="bob", state=LinkState.REVOKED, ended_by="bob@REALM.TEST", ended_at=NOW)
PROPOSED = admin_link("LINK-0000-0003", 103, state=LinkState.PROPOSED, decided_by=None, decided_at=None)
EVIL = "e" * 64
UNDECIDED: dict[str, Any] = {"state": ProposalState.SUBMITTED, "decided_by": None, "decided_at": None, "reason": ""}
ACTIVATED = proposal("PROP-0000-0003", state=ProposalState.ACTIVATED, activated_by="olga@REALM.TEST")
BEFORE = 3
"""The revision that is attacked."""

SEAL_HEAD = "UPDATE register_head SET revision = :revision, seal = :seal"


class Site:
    """A database, and the brokers on it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bridge.db"
        self._directory = directory
        self._engines = [open_migrated(f"sqlite:///{self.path}")]

    def broker(self, name: str = "a", key: bytes = KEY) -> SealedRegister:
        """Start a broker of that name, or start it again: it knows its key and its mark, and nothing else."""
        engine = open_database(f"sqlite:///{self.path}")
        self._engines.append(engine)
        ledger = SqlLedger(engine, Writer.new(f"broker-{name}"), lambda: NOW)
        return SealedRegister(ledger, Seal(key), RevisionMark(self.mark(name)))

    def mark(self, name: str = "a") -> Path:
        """The broker's mark file."""
        return self._directory / f"{name}.mark"

    def attack(self, *statements: str, **values: object) -> None:
        """Do as whoever can write the database's file likes."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                connection.execute(statement, values)

    def copied(self) -> Callable[[], None]:
        """Take a copy of the database; call what is returned to put it back."""
        copy = self._directory / "copy.db"
        _copy(self.path, copy)
        return partial(_copy, copy, self.path)

    def close(self) -> None:
        """Let go of the database."""
        for engine in self._engines:
            engine.dispose()


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A migrated database."""
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def broker(site: Site) -> SealedRegister:
    """A broker that has worked for a while: an example of everything, in three changes."""
    broker = site.broker()
    with broker.begin() as (tx, _):
        for one in (link(), REVOKED, PROPOSED):
            tx.put_link(one)
    with broker.begin() as (tx, _):
        tx.put_consent(consent())
        tx.kill(switch())
        for bundle in (CONTENT, EVIL):
            tx.keep_bundle(bundle, {}, ADA, NOW)
        for policy in (proposal(), proposal("PROP-0000-0002", **UNDECIDED), ACTIVATED):
            tx.put_proposal(policy)
        tx.put_activation(activation(proposal_id="PROP-0000-0003"))
        tx.put_activation(broken_glass(2, second=None))
    with broker.begin() as (tx, _):
        tx.kill(switch("KILL-0000-0002", 777))
        tx.lift("KILL-0000-0002", "eve@REALM.TEST")
    return broker


def throw(broker: SealedRegister) -> None:
    """Change the register."""
    with broker.begin() as (tx, _):
        tx.kill(switch("KILL-0000-0003", 888))


INSERT = "INSERT INTO account_links SELECT 'LINK-9', issuer, {user}, user_login, {account}, {uid}, method, 'active',"
INSERT += " proposed_by, proposed_at, reason, decided_by, decided_at, NULL, NULL FROM account_links LIMIT 1"
FORGED = Seal(b"f" * 32).make("register", str(BEFORE), digest(Register(BEFORE)))

BEHIND = {
    "a link of mallory to alice": INSERT.format(user=666, account="'alice'", uid=20001),
    "another account": "UPDATE account_links SET account = 'root' WHERE user_id = 101",
    "another uid": "UPDATE account_links SET uid = 0 WHERE user_id = 101",
    "another user": "UPDATE account_links SET user_id = 666 WHERE user_id = 101",
    "another gitlab": "UPDATE account_links SET issuer = 'https://evil.test' WHERE user_id = 101",
    "a revoked link again": "UPDATE account_links SET state = 'active' WHERE user_id = 102",
    "a revoked link that never ended": "UPDATE account_links SET ended_by = NULL, ended_at = NULL WHERE user_id = 102",
    "an approval": "UPDATE account_links SET state = 'active', decided_by = 'eve', decided_at = 1 WHERE user_id = 103",
    "another method": "UPDATE account_links SET method = 'provider' WHERE user_id = 103",
    "another proposer": "UPDATE account_links SET proposed_by = 'mallory@REALM.TEST' WHERE user_id = 103",
    "no state that there is": "UPDATE account_links SET state = 'ACTIVE' WHERE user_id = 101",
    "no time that there is": "UPDATE account_links SET proposed_at = 9223372036854775807 WHERE user_id = 101",
    "no link": "DELETE FROM account_links WHERE user_id = 101",
    "no revoked link": "DELETE FROM account_links WHERE user_id = 102",
    "no consent": "DELETE FROM consents",
    "consent to all": "UPDATE consents SET mode = 'site'",
    "consent of another": "UPDATE consents SET uid = 20002",
    "one more project": "INSERT INTO consent_projects SELECT account, issuer, 66, 1 FROM consent_projects LIMIT 1",
    "a denied project allowed": "UPDATE consent_projects SET allowed = 1 WHERE project_id = 8",
    "no denied project": "DELETE FROM consent_projects WHERE project_id = 8",
    "a lifted switch": "UPDATE kill_switches SET lifted_at = 1, lifted_by = 'eve' WHERE number = 666",
    "a switch for another": "UPDATE kill_switches SET number = 667 WHERE number = 666",
    "a narrower switch": "UPDATE kill_switches SET scope = 'runner' WHERE number = 666",
    "no switch": "DELETE FROM kill_switches WHERE number = 666",
    "one more switch": "INSERT INTO kill_switches SELECT 'K', scope, issuer, 1, account, reason, actor, 1, NULL, NULL"
    " FROM kill_switches LIMIT 1",
    "a proposal approved": "UPDATE proposals SET state = 'approved', decided_by = 'eve', decided_at = 1"
    " WHERE state = 'submitted'",
    "another content approved": "UPDATE proposals SET content_hash = (SELECT max(content_hash) FROM bundles)"
    " WHERE state = 'approved'",
    "another base": "UPDATE proposals SET base_number = 1, base_hash = content_hash WHERE state = 'approved'",
    "another author": "UPDATE proposals SET author = 'mallory@REALM.TEST' WHERE state = 'submitted'",
    "an approval of today": "UPDATE proposals SET decided_at = decided_at + 1 WHERE state = 'approved'",
    "an approval again": "UPDATE proposals SET state = 'approved', activated_by = NULL WHERE state = 'activated'",
    "no proposal": "DELETE FROM proposals WHERE state = 'submitted'",
    "another bundle in force": "UPDATE activations SET content_hash = (SELECT max(content_hash) FROM bundles)"
    " WHERE number = 1",
    "one more activation": "INSERT INTO activations SELECT 9, max(bundles.content_hash), 'roll_back', 'eve', '',"
    ' "at", NULL, NULL, NULL FROM bundles, activations',
    "an older one in force": "UPDATE activations SET number = 9 WHERE number = 1",
    "an emergency confirmed": "UPDATE activations SET second = 'eve' WHERE number = 2",
    "an emergency without end": "UPDATE activations SET kind = 'roll_back', ends_at = NULL WHERE number = 2",
    "a longer emergency": "UPDATE activations SET ends_at = ends_at + 1000000 WHERE number = 2",
    "no activation": "DELETE FROM activations",
}
"""Changes of rows, with the head left as it is."""

HEADS = {
    "no head": ("DELETE FROM register_head", "rolled_back"),
    "an older revision": ("UPDATE register_head SET revision = 2", "rolled_back"),
    "a newer revision": ("UPDATE register_head SET revision = 4", "broken"),
    "the first revision": ("UPDATE register_head SET revision = 0, seal = x''", "rolled_back"),
    "a revision below the first": ("UPDATE register_head SET revision = -1", "rolled_back"),
    "no seal": ("UPDATE register_head SET seal = x''", "broken"),
    "zeros": ("UPDATE register_head SET seal = zeroblob(32)", "broken"),
    "half of the seal": ("UPDATE register_head SET seal = substr(seal, 1, 16)", "broken"),
    "a longer seal": ("UPDATE register_head SET seal = CAST(seal || x'00' AS BLOB)", "broken"),
    "the seal of another key": ("UPDATE register_head SET seal = :forged", "broken"),
}
"""Changes of the head, and what is found."""


@pytest.mark.threat("T11")
@pytest.mark.threat("T21")
@pytest.mark.parametrize("statement", BEHIND.values(), ids=BEHIND.keys())
def test_a_database_writer_can_not_change_a_row(site: Site, broker: SealedRegister, statement: str) -> None:
    before = broker.read()
    site.attack("PRAGMA foreign_keys = OFF", statement)

    assert broker.read() == before
    for started in (site.broker("a"), site.broker("new")):
        with pytest.raises(Defect, match=r"register\.broken"):
            started.read()


@pytest.mark.threat("T11")
@pytest.mark.threat("T21")
@pytest.mark.parametrize("statement", BEHIND.values(), ids=BEHIND.keys())
def test_a_database_writer_can_not_have_a_row_sealed_by_the_next_change(
    site: Site, broker: SealedRegister, statement: str
) -> None:
    site.attack(statement)
    with pytest.raises(Defect, match=r"register\.broken"):
        throw(broker)
    # Where kill switches can't be thrown, memory is trusted no longer.
    with pytest.raises(Defect, match=r"register\.broken"):
        broker.read()
    with broker._ledger.read() as view:
        assert view.register_head().revision == BEFORE


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("statement", "code"), HEADS.values(), ids=HEADS.keys())
def test_a_database_writer_can_not_change_the_head(
    site: Site, broker: SealedRegister, statement: str, code: str
) -> None:
    site.attack(statement, forged=FORGED)
    for one in (broker, site.broker("a")):
        with pytest.raises(Defect, match=rf"register\.{code}"):
            one.read()
        with pytest.raises(Defect, match=rf"register\.{code}"):
            throw(one)


TRIGGERS = {
    "a switch brings a link": ("AFTER INSERT ON kill_switches", INSERT.format(user=666, account="'alice'", uid=20001)),
    "the head brings a link": ("AFTER UPDATE ON register_head", INSERT.format(user=666, account="'alice'", uid=20001)),
    "the head lifts": ("AFTER UPDATE ON register_head", "UPDATE kill_switches SET lifted_at = 1, lifted_by = 'eve'"),
    "a new link is for root": ("AFTER INSERT ON account_links", "UPDATE account_links SET account = 'root', uid = 0"),
    "a new switch is gone": ("AFTER INSERT ON kill_switches", "DELETE FROM kill_switches WHERE rowid = NEW.rowid"),
    "the head is another": ("AFTER UPDATE ON register_head", "UPDATE register_head SET seal = zeroblob(32)"),
    "the head stays": ("AFTER UPDATE ON register_head", "UPDATE register_head SET revision = 3"),
}


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("event", "does"), TRIGGERS.values(), ids=TRIGGERS.keys())
def test_a_database_writer_can_not_have_a_trigger_add_to_what_is_sealed(
    site: Site, broker: SealedRegister, event: str, does: str
) -> None:
    before = broker.read()
    site.attack(f"CREATE TRIGGER evil {event} BEGIN {does}; END")
    with pytest.raises(Defect, match=r"register\.broken"), broker.begin() as (tx, _):
        put_both(tx)
    site.attack("DROP TRIGGER evil")
    assert broker.read() == before
    assert site.broker("a").read() == before


def put_both(tx: Any) -> None:
    """Throw a switch and make a link."""
    tx.kill(switch("KILL-0000-0003", 888))
    tx.put_link(link("LINK-0000-0009", 109))


@pytest.mark.threat("T21")
@pytest.mark.parametrize("asked", [True, False], ids=["asked again", "not asked again"])
def test_a_database_writer_can_not_take_the_head_back_between_the_seal_and_the_commit(
    site: Site, broker: SealedRegister, *, asked: bool
) -> None:
    site.attack(
        "CREATE TABLE old AS SELECT * FROM register_head",
        "CREATE TRIGGER evil AFTER INSERT ON audit BEGIN"
        " UPDATE register_head SET (revision, seal) = (SELECT revision, seal FROM old); END",
    )

    def change() -> None:
        with broker._ledger.begin() as tx:
            with broker.change(tx):
                tx.kill(switch("KILL-0000-0003", 888))
            tx.append(Record(RecordType.KILL, Phase.OK, "KILL-0000-0003"))
            if asked:
                broker.current(tx)

    if asked:
        with pytest.raises(Defect, match=r"register\.broken"):
            change()
        assert broker.read().revision == BEFORE
        return
    change()
    for one in (broker, site.broker("a")):
        with pytest.raises(Defect, match=r"register\.rolled_back"):
            one.read()


@pytest.mark.threat("T21")
def test_a_database_writer_can_not_plant_a_switch_for_the_broker_to_find_or_to_lift(
    site: Site, broker: SealedRegister
) -> None:
    planted = BEHIND["one more switch"].replace(", 1, account", ", 888, account")
    site.attack(planted)
    with pytest.raises(Defect, match=r"register\.broken"):
        throw(broker)
    with pytest.raises(Defect, match=r"register\.broken"), site.broker("a").begin() as (tx, _):
        tx.lift("K", "eve@REALM.TEST")


def test_what_memory_did_not_know_can_not_be_lifted(site: Site, broker: SealedRegister) -> None:
    site.attack(BEHIND["one more switch"])
    with pytest.raises(Defect, match=r"register\.broken"), broker.begin() as (tx, _):
        tx.lift("K", "eve@REALM.TEST")


@pytest.mark.threat("T49")
def test_a_database_writer_can_not_put_an_older_register_back(site: Site, broker: SealedRegister) -> None:
    put_back = site.copied()
    throw(broker)
    put_back()  # before anybody has read the newer one
    for one in (broker, site.broker("a")):
        with pytest.raises(Defect, match=r"register\.rolled_back") as caught:
            one.read()
        assert dict(caught.value.context) == {"revision": 3, "seen": 4}
        with pytest.raises(Defect, match=r"register\.rolled_back"):
            throw(one)


@pytest.mark.threat("T49")
def test_a_database_writer_can_not_put_an_older_register_back_before_another_broker(
    site: Site, broker: SealedRegister
) -> None:
    other = site.broker("b")
    put_back = site.copied()
    throw(broker)
    other.read()
    put_back()
    for one in (other, site.broker("b")):
        with pytest.raises(Defect, match=r"register\.rolled_back"):
            one.read()


@pytest.mark.threat("T49")
def test_a_database_writer_can_not_put_older_rows_under_the_newest_head(site: Site, broker: SealedRegister) -> None:
    put_back = site.copied()
    throw(broker)
    with broker._ledger.read() as view:
        head = view.register_head()
    put_back()
    site.attack(SEAL_HEAD, revision=head.revision, seal=head.seal)
    with pytest.raises(Defect, match=r"register\.broken"):
        site.broker("a").read()


@pytest.mark.threat("T49")
def test_a_database_writer_can_not_bring_a_change_that_failed_in_place_of_the_one_that_did_not(
    site: Site, broker: SealedRegister
) -> None:
    """Both have good seals of the same revision."""
    heads: list[RegisterHead] = []

    def fail() -> None:
        with broker._ledger.begin() as tx:
            with broker.change(tx):
                tx.put_link(replace(PROPOSED, state=LinkState.ACTIVE, decided_by="eve@REALM.TEST", decided_at=NOW))
            heads.append(tx.register_head())
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    put_back = site.copied()
    throw(broker)
    put_back()
    site.attack(
        "UPDATE account_links SET state = 'active', decided_by = 'eve@REALM.TEST', decided_at = proposed_at"
        " WHERE user_id = 103",
    )
    site.attack(SEAL_HEAD, revision=heads[0].revision, seal=heads[0].seal)
    assert site.broker("never seen any").read().active_link(GITLAB, 103) is not None
    for one in (broker, site.broker("a")):
        with pytest.raises(Defect, match=r"register\.rolled_back"):
            one.read()


@pytest.mark.threat("T21")
def test_a_head_of_another_register_under_the_same_key_is_not_this_ones(
    site: Site, broker: SealedRegister, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    elsewhere = Site(tmp_path / "other")
    other = elsewhere.broker()
    for number in range(BEFORE):
        with other.begin() as (tx, _):
            tx.put_link(link(f"LINK-{number}", number))
    with other._ledger.read() as view:
        head = view.register_head()
    assert head.revision == BEFORE
    site.attack(SEAL_HEAD, revision=head.revision, seal=head.seal)
    elsewhere.close()
    with pytest.raises(Defect, match=r"register\.broken"):
        broker.read()


@pytest.mark.threat("T21")
def test_a_broker_with_another_key_believes_nothing(site: Site, broker: SealedRegister) -> None:
    assert broker.read().revision == BEFORE
    with pytest.raises(Defect, match=r"register\.broken"):
        site.broker("b", KEY[::-1]).read()


@pytest.mark.threat("T21")
@pytest.mark.parametrize("one", ["link", "consent", "proposal", "activation", "seal"])
def test_what_nobody_ever_sealed_lets_nobody_in(site: Site, tmp_path: Path, one: str) -> None:
    (tmp_path / "other").mkdir()
    unkeyed = Site(tmp_path / "other")
    with unkeyed.broker("b", b"m" * 32).begin() as (tx, _):
        tx.put_link(link())
        tx.put_consent(consent())
        tx.keep_bundle(CONTENT, {}, ADA, NOW)
        tx.put_proposal(proposal())
        tx.put_activation(activation(proposal_id=None, kind=ActivationKind.ROLL_BACK))
    unkeyed.close()
    site.attack(
        f"ATTACH '{unkeyed.path}' AS evil",
        {
            "link": "INSERT INTO account_links SELECT * FROM evil.account_links",
            "consent": "INSERT INTO consents SELECT * FROM evil.consents",
            "proposal": "INSERT INTO proposals SELECT * FROM evil.proposals",
            "activation": "INSERT INTO activations SELECT * FROM evil.activations",
            "seal": "UPDATE register_head SET seal = zeroblob(32)",
        }[one],
    )
    broker = site.broker()
    with pytest.raises(Defect, match=r"register\.broken"):
        broker.read()
    with pytest.raises(Defect, match=r"register\.broken"):
        throw(broker)


def test_switches_from_before_the_first_seal_count_and_come_under_it(site: Site, broker: SealedRegister) -> None:
    site.attack("DELETE FROM account_links", "DELETE FROM consent_projects", "DELETE FROM consents")
    site.attack("DELETE FROM activations", "DELETE FROM proposals")
    site.attack("UPDATE register_head SET revision = 0, seal = x''")
    started = site.broker("new")
    assert [one.number for one in started.read().switches_in_force] == [666]
    throw(started)
    assert [one.number for one in site.broker("new").read().switches_in_force] == [666, 888]


def test_brokers_on_one_database_see_each_others_changes_at_once(site: Site, broker: SealedRegister) -> None:
    other = site.broker("b")
    assert other.read() == broker.read()
    with other.begin() as (tx, before):
        assert before.active_link(GITLAB, 101) == link()
        tx.put_link(replace(link(), state=LinkState.REVOKED, ended_by="alice@REALM.TEST", ended_at=NOW))
    assert broker.read().active_link(GITLAB, 101) is None
    with broker.begin() as (tx, _):
        tx.put_consent(consent(mode=ConsentMode.STOPPED))
    said = other.read().consent("alice", 20001)
    assert said is not None
    assert said.mode is ConsentMode.STOPPED
    assert other.read().consent("alice", 30001) is None
    assert site.broker("a").read() == site.broker("b").read() == site.broker("c").read() == other.read()


def test_a_view_from_before_a_change_is_no_older_database(site: Site, broker: SealedRegister) -> None:
    other = site.broker("b")
    with broker._ledger.read() as view, other._ledger.read() as other_view:
        assert view.register_head() == other_view.register_head()
        throw(broker)
        assert broker.current(view).revision == BEFORE + 1
        assert other.read().revision == BEFORE + 1
        assert other.current(other_view).revision == BEFORE + 1


def test_a_change_that_fails_after_its_seal_leaves_nothing_behind(site: Site, broker: SealedRegister) -> None:
    before = broker.read()

    def fail() -> None:
        with broker._ledger.begin() as tx:
            with broker.change(tx):
                put_both(tx)
            assert broker.current(tx).revision == BEFORE + 1
            assert broker.current(tx).active_link(GITLAB, 109) is not None
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    for one in (broker, site.broker("a")):
        assert one.read() == before
    throw(broker)
    assert site.broker("a").read().revision == BEFORE + 1


def test_two_changes_of_one_transaction_are_sealed_one_after_the_other(site: Site, broker: SealedRegister) -> None:
    with broker._ledger.begin() as tx:
        with broker.change(tx) as first:
            tx.put_link(link("LINK-0000-0009", 109))
        with broker.change(tx) as second:
            tx.put_link(replace(link("LINK-0000-0009", 109), state=LinkState.REVOKED))
    assert (first.revision, second.revision) == (BEFORE, BEFORE + 1)
    assert second.active_link(GITLAB, 109) is not None
    started = site.broker("a").read()
    assert (started.revision, started.active_link(GITLAB, 109)) == (BEFORE + 2, None)


@pytest.mark.parametrize("when", ["before", "between", "nested"])
def test_only_what_a_change_covers_is_sealed(site: Site, broker: SealedRegister, when: str) -> None:
    def stray() -> None:
        with broker._ledger.begin() as tx:
            if when == "before":
                tx.put_link(link("LINK-0000-0009", 109))
            with broker.change(tx):
                tx.kill(switch("KILL-0000-0003", 888))
                if when == "nested":
                    with broker.change(tx):
                        tx.put_link(link("LINK-0000-0009", 109))
            if when == "between":
                tx.put_link(link("LINK-0000-0009", 109))
                with broker.change(tx):
                    tx.kill(switch("KILL-0000-0004", 999))

    before = broker.read()
    with pytest.raises(Defect, match=r"register\.broken|db\.integrity"):
        stray()
    assert broker.read() == site.broker("a").read() == before


def test_a_moments_zone_makes_no_difference(site: Site, broker: SealedRegister) -> None:
    with broker.begin() as (tx, _):
        tx.put_link(link("LINK-0000-0009", 109, proposed_at=NOW.astimezone(timezone(timedelta(hours=9)))))
        tx.put_consent(consent(allowed=(ProjectRef(GITLAB, 7), ProjectRef(GITLAB, 7), ProjectRef(GITLAB, 1))))
    assert site.broker("a").read() == broker.read()


def _other(value: object) -> object:
    match value:
        case enum.StrEnum():
            return next(one for one in type(value) if one is not value)
        case datetime():
            return value + timedelta(microseconds=1)
        case int():
            return value + 1
        case tuple():
            return (*value, ProjectRef(GITLAB, 99))
        case str():
            return value + " "
    return NOW


FULL = Register(
    1,
    (replace(REVOKED, ended_at=NOW),),
    (consent(),),
    (switch(lifted_at=NOW, lifted_by="eve"),),
    (proposal(activated_by="olga"),),
    (broken_glass(proposal_id="PROP-0000-0001"),),
)


@pytest.mark.threat("T21")
@pytest.mark.parametrize("rows", ["links", "consents", "switches", "proposals", "activations"])
def test_every_field_of_every_row_is_sealed(rows: str) -> None:
    [row] = getattr(FULL, rows)
    for field in fields(row):
        value = getattr(row, field.name)
        for changed in (_other(value), None, ""):
            if changed != value:
                assert digest(replace(FULL, **{rows: (replace(row, **{field.name: changed}),)})) != digest(FULL), field
    assert digest(replace(FULL, **{rows: ()})) != digest(FULL)
    assert digest(replace(FULL, **{rows: (row, row)})) != digest(FULL)


def test_a_register_without_the_kinds_of_later_releases_has_the_digest_of_the_first() -> None:
    """Made by the first release, of the same three rows: a bridge that is upgraded finds its seal good."""
    before = Register(1, FULL.links, FULL.consents, FULL.switches)
    assert digest(before).hex() == "b5c57a8a18bfcc7ef5e1c579477e9965cf5ba410c08a94b0e4f892efcc87a597"
    assert digest(replace(before, proposals=FULL.proposals)) != digest(before)


def test_the_order_of_rows_is_not_sealed() -> None:
    one, other = Register(1, links=(link("A"), link("B", 2))), Register(1, links=(link("B", 2), link("A")))
    assert digest(one) == digest(other)


def _mark(path: Path, content: bytes, mode: int = 0o600) -> RevisionMark:
    path.write_bytes(content)
    path.chmod(mode)
    return RevisionMark(path)


SEAL = b"s" * 32
GOOD = b"7 " + SEAL.hex().encode() + b"\n"


@pytest.mark.threat("T49")
@pytest.mark.parametrize(
    "content",
    [b"", b"7", b"7\n", b" " + GOOD, GOOD[:-1], GOOD + b"\n", b"-" + GOOD, b"+" + GOOD, b"0x" + GOOD, b"1_" + GOOD,
     b"9" * 19 + GOOD, GOOD.replace(b"73", b"7g", 1), b"\xff" * 70, b"\xd9\xa7" + GOOD[1:], GOOD * 1000, b"\0" * 70],
)  # fmt: skip
def test_a_mark_that_is_none_is_a_defect_and_not_a_new_beginning(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Defect, match=r"register\.mark"):
        _mark(tmp_path / "mark", content)


@pytest.mark.threat("T49")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_mark_that_others_can_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    with pytest.raises(Defect, match=r"register\.mark"):
        _mark(tmp_path / "mark", GOOD, mode)


def test_a_mark_that_can_not_be_opened_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "mark").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "mark", tmp_path / "loop", tmp_path / "loop" / "mark"):
        with pytest.raises(Defect, match=r"register\.mark"):
            RevisionMark(path)


def test_a_mark_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    mark = RevisionMark(tmp_path / "mark")
    assert mark.revision == 0
    mark.reach(RegisterHead(0, b""))
    assert list(tmp_path.iterdir()) == []
    mark.reach(RegisterHead(7, SEAL))
    assert [one.name for one in tmp_path.iterdir()] == ["mark"]
    assert (tmp_path / "mark").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "mark").read_bytes() == GOOD
    assert RevisionMark(tmp_path / "mark").revision == 7


@pytest.mark.threat("T49")
@pytest.mark.parametrize("head", [RegisterHead(6, SEAL), RegisterHead(0, b""), RegisterHead(7, b"t" * 32)])
def test_a_mark_never_goes_back(tmp_path: Path, head: RegisterHead) -> None:
    mark = _mark(tmp_path / "mark", GOOD)
    mark.reach(RegisterHead(7, SEAL))
    with pytest.raises(Defect, match=r"register\.rolled_back"):
        mark.reach(head)
    assert (tmp_path / "mark").read_bytes() == GOOD


def test_a_change_that_was_stored_counts_though_the_mark_can_not_be_written(site: Site) -> None:
    broker = site.broker("missing/a")
    with pytest.raises(Outage, match=r"register\.mark_unwritten"):
        throw(broker)
    assert [one.number for one in broker.read().switches_in_force] == [888]
    assert broker.read() == site.broker("b").read()


def test_a_mark_that_can_not_be_written_is_an_outage_until_it_can(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    mark = RevisionMark(directory / "mark")
    directory.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(Outage, match=r"register\.mark_unwritten") as caught:
            mark.reach(RegisterHead(7, SEAL))
        assert caught.value.retryable
    (tmp_path / "elsewhere").rename(directory)
    mark.reach(RegisterHead(7, SEAL))
    assert (directory / "mark").read_bytes() == GOOD
