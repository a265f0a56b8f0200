"""Whoever can write the database can not change who runs as whom: the broker sealed what it knew, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sealed_site import BEFORE, KEY, PROPOSED, SEAL_HEAD, Site, put_both, throw, worked

from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import Defect
from bridge.proposals import ActivationKind
from bridge.register import LinkState, Register, RegisterHead
from bridge.seal import Seal
from bridge.sealed import SealedRegister, digest
from tests.register_example import (
    ADA,
    CONTENT,
    GITLAB,
    NOW,
    activation,
    consent,
    link,
    proposal,
    switch,
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A migrated database."""
    with closing(Site(tmp_path)) as site:
        yield site


@pytest.fixture
def broker(site: Site) -> SealedRegister:
    """A broker that has worked for a while."""
    return worked(site)


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
