"""The register's tables: what is put comes back, and the databases themselves hold its rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import CheckConstraint, Engine, insert, inspect, literal_column, text, update
from sqlalchemy.exc import DatabaseError

from bridge.audit.ledger import Ledger, Tx
from bridge.db.engine import WRITES
from bridge.db.migrate import migrations_directory
from bridge.db.schema import account_links, metadata
from bridge.errors import Conflict, Defect, NotFound
from bridge.model import KillScope
from bridge.register import ConsentMode, Link, LinkMethod, LinkState, ProjectRef, Register, RegisterHead, edited
from tests.register_example import GITLAB, NOW, admin_link, consent, link, switch

ENDED = replace(link(), state=LinkState.REVOKED, ended_by="alice@REALM.TEST", ended_at=NOW + timedelta(days=1))


def put(ledger: Ledger, *links: Link) -> None:
    """Store links, in one transaction that is sealed in no good way."""
    with ledger.begin() as tx:
        for one in links:
            tx.put_link(one)
        seal_anyhow(tx)


def change(ledger: Ledger, *steps: Callable[[Tx], Any]) -> None:
    """Take steps, in one transaction."""
    with ledger.begin() as tx:
        for step in steps:
            step(tx)


def seal_anyhow(tx: Tx) -> None:
    """Go to the next revision."""
    tx.set_register_head(RegisterHead(tx.register_head().revision + 1, b"seal"))


def stored(ledger: Ledger) -> Register:
    """The register as it stands."""
    with ledger.read() as view:
        return view.register()


def test_a_new_register_is_empty_and_has_no_seal(ledger: Ledger) -> None:
    with ledger.read() as view:
        assert view.register_head() == RegisterHead(0, b"")
        assert view.register() == Register(0)


def test_what_is_put_comes_back_in_order_and_as_it_was_put(ledger: Ledger) -> None:
    bare = Link("B", GITLAB, 5, "", "bob", 2**40, LinkMethod.ADMIN, LinkState.PROPOSED, "root@REALM.TEST", NOW)
    every = [replace(ENDED, link_id="C"), bare, link("A", 6)]
    nothing = consent("bob", mode=ConsentMode.STOPPED, allowed=(), denied=())
    with ledger.begin() as tx:
        for one in every:
            tx.put_link(one)
        tx.put_consent(nothing)
        tx.put_consent(consent(allowed=(ProjectRef("https://other", 1), ProjectRef(GITLAB, 7), ProjectRef(GITLAB, 7))))
        late, early = switch("A", 1, created_at=NOW + timedelta(seconds=1)), switch("B", 2)
        assert tx.kill(late) is late
        assert tx.kill(early) is early
        lifted = tx.lift("A", "eve@REALM.TEST")
        seal_anyhow(tx)
        within = tx.register()
    alices = consent(allowed=(ProjectRef(GITLAB, 7), ProjectRef("https://other", 1)))
    expected = Register(1, (every[2], every[1], every[0]), (alices, nothing), (early, lifted))
    assert stored(ledger) == expected == within


def test_memory_says_of_a_transaction_what_the_tables_say(ledger: Ledger) -> None:
    put(ledger, link())
    before = stored(ledger)
    with ledger.begin() as tx:
        tx.put_link(ENDED)
        tx.put_link(link("LINK-0000-0002"))
        tx.put_consent(consent(denied=(ProjectRef(GITLAB, 9), ProjectRef(GITLAB, 9), ProjectRef(GITLAB, 8))))
        tx.kill(switch())
        tx.kill(switch("KILL-0000-0002"))
        tx.lift("KILL-0000-0001", "eve@REALM.TEST")
        seal_anyhow(tx)
        assert edited(before, tx.edits()) == tx.register()
        assert len(tx.edits()) == 5


def test_a_moment_of_another_zone_comes_back_as_the_same_moment(ledger: Ledger) -> None:
    elsewhere = link(proposed_at=NOW.astimezone(timezone(timedelta(hours=9))))
    put(ledger, elsewhere)
    assert stored(ledger).links == (elsewhere,) == (link(),)


def test_a_link_and_a_consent_are_replaced_as_a_whole(ledger: Ledger) -> None:
    put(ledger, link())
    put(ledger, ENDED)
    assert stored(ledger).links == (ENDED,)
    for said in (consent(), consent(uid=30001, mode=ConsentMode.SITE, allowed=(), denied=(ProjectRef(GITLAB, 7),))):
        with ledger.begin() as tx:
            tx.put_consent(said)
            seal_anyhow(tx)
        assert stored(ledger).consents == (said,)


@pytest.mark.threat("T11")
@pytest.mark.parametrize("how", ["a second link", "an old link again"])
def test_a_gitlab_user_can_not_have_two_links_in_force(ledger: Ledger, how: str) -> None:
    put(ledger, ENDED, link("LINK-0000-0002", account="bob"))
    second = link() if how == "an old link again" else link("LINK-0000-0003", account="carol")
    before = stored(ledger)
    with pytest.raises(Conflict, match=r"link\.taken") as caught:
        change(ledger, lambda tx: tx.put_consent(consent()), lambda tx: tx.put_link(second))
    assert dict(caught.value.context) == {"issuer": GITLAB, "user_id": 101}
    assert stored(ledger) == before


def test_other_users_and_other_gitlabs_have_links_of_their_own(ledger: Ledger) -> None:
    put(ledger, ENDED, link("A"), link("B", 102), link("C", issuer="https://other.realm.test"))
    put(ledger, link("D", state=LinkState.PROPOSED), link("E", state=LinkState.REJECTED))
    assert len(stored(ledger).links) == 6


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "nobody_else",
    [{"decided_by": None}, {"decided_by": "root@REALM.TEST"}],
    ids=["nobody approved", "approved by who proposed"],
)
def test_an_administrators_link_never_counts_without_a_second_person(
    ledger: Ledger, nobody_else: dict[str, Any]
) -> None:
    proposed = admin_link(state=LinkState.PROPOSED, decided_by=None, decided_at=None)
    put(ledger, proposed)
    before = stored(ledger)
    with pytest.raises(Defect, match=r"db\.integrity"):
        put(ledger, link("OTHER", 5), admin_link(**nobody_else))
    assert stored(ledger) == before
    put(ledger, admin_link())
    assert stored(ledger).links == (admin_link(),)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("account_links", "method", "'by hand'"),
        ("account_links", "method", "'ADMIN'"),
        ("account_links", "state", "'alive'"),
        ("account_links", "uid", "-1"),
        ("account_links", "account", "NULL"),
        ("consents", "mode", "'anything'"),
        ("consents", "uid", "-1"),
        ("consent_projects", "allowed", "2"),
        ("consent_projects", "account", "'nobody'"),
        ("register_head", "id", "2"),
        ("register_head", "revision", "-1"),
    ],
)
def test_the_database_itself_refuses_what_makes_no_sense(
    ledger: Ledger, engine: Engine, table: str, column: str, value: str
) -> None:
    with ledger.begin() as tx:
        tx.put_link(link())
        tx.put_consent(consent(denied=()))
        seal_anyhow(tx)
    with pytest.raises(DatabaseError), engine.begin() as connection:
        connection.execute(update(metadata.tables[table]).values({column: literal_column(value)}))


def test_every_value_that_the_code_knows_is_one_that_the_database_knows(ledger: Ledger) -> None:
    kinds = itertools.product(LinkMethod, LinkState)
    links = [admin_link(f"LINK-{n:02}", n, method=method, state=state) for n, (method, state) in enumerate(kinds)]
    with ledger.begin() as tx:
        for one in links:
            tx.put_link(one)
        for mode in ConsentMode:
            tx.put_consent(consent(mode.value, mode=mode))
        for scope in KillScope:
            tx.kill(switch(scope.value, scope=scope))
        seal_anyhow(tx)
    found = stored(ledger)
    assert found.links == tuple(links)
    assert {one.mode for one in found.consents} == set(ConsentMode)
    assert {one.scope for one in found.switches} == set(KillScope)


def test_a_project_can_not_be_allowed_and_denied_at_once(ledger: Ledger) -> None:
    with pytest.raises(Defect, match=r"db\.integrity"), ledger.begin() as tx:
        tx.put_consent(consent(denied=(ProjectRef(GITLAB, 7),)))
    assert stored(ledger) == Register(0)


@pytest.mark.parametrize("revision", [-1, 0, 1, 3, 2**62])
def test_the_head_goes_up_by_one_or_not_at_all(ledger: Ledger, revision: int) -> None:
    with ledger.begin() as tx:
        tx.set_register_head(RegisterHead(1, b"one"))
    with pytest.raises(Defect, match=r"db\.integrity"), ledger.begin() as tx:
        tx.set_register_head(RegisterHead(revision, b"other"))
    with ledger.read() as view:
        assert view.register_head() == RegisterHead(1, b"one")


@pytest.mark.parametrize(
    "step",
    [
        lambda tx: tx.put_link(link()),
        lambda tx: tx.put_consent(consent()),
        lambda tx: tx.kill(switch()),
        lambda tx: tx.lift("KILL-0000-0009", "eve@REALM.TEST"),
    ],
    ids=["link", "consent", "kill", "lift"],
)
@pytest.mark.parametrize("before_the_change", [True, False])
def test_a_change_that_nobody_sealed_is_not_stored(
    ledger: Ledger, step: Callable[[Tx], Any], *, before_the_change: bool
) -> None:
    with ledger.begin() as tx:
        tx.kill(switch("KILL-0000-0009", 9))
        seal_anyhow(tx)
    before = stored(ledger)
    with pytest.raises(Defect, match=r"register\.unsealed"):
        change(ledger, *([seal_anyhow] if before_the_change else []), step)
    assert stored(ledger) == before


def test_after_the_commit_and_only_then_others_are_told(ledger: Ledger) -> None:
    seen: list[Register] = []

    def tell(tx: Tx) -> None:
        tx.after_commit(lambda: seen.append(stored(ledger)))

    with ledger.begin() as tx:
        tx.put_link(link())
        seal_anyhow(tx)
        tell(tx)
        assert seen == []
    assert [one.links for one in seen] == [(link(),)]
    with pytest.raises(NotFound):
        change(ledger, tell, lambda tx: tx.lift("NONE", "eve@REALM.TEST"))
    with pytest.raises(Defect, match=r"register\.unsealed"):
        change(ledger, tell, lambda tx: tx.put_link(ENDED))
    assert len(seen) == 1


def test_a_head_that_is_gone_reads_as_none_and_can_only_begin_anew(ledger: Ledger, engine: Engine) -> None:
    put(ledger, link())
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM register_head"))
    with ledger.read() as view:
        assert view.register_head() == RegisterHead(0, b"")
    with pytest.raises(Defect, match=r"db\.integrity"), ledger.begin() as tx:
        tx.set_register_head(RegisterHead(2, b"seal"))
    with ledger.begin() as tx:
        tx.set_register_head(RegisterHead(1, b"seal"))
    with ledger.read() as view:
        assert view.register_head() == RegisterHead(1, b"seal")


@pytest.mark.threat("T21")
@pytest.mark.parametrize(
    ("column", "value"),
    [("method", "'by hand'"), ("state", "'alive'"), ("proposed_at", str(2**62)), ("decided_at", str(-(2**62)))],
)
def test_rows_that_no_bridge_wrote_are_a_defect_and_not_a_crash(
    ledger: Ledger, engine: Engine, column: str, value: str
) -> None:
    with engine.begin() as connection:
        for constraint in ("method", "state", "four_eyes"):
            if engine.dialect.name == "postgresql":
                connection.execute(text(f"ALTER TABLE account_links DROP CONSTRAINT ck_account_links_{constraint}"))
        if engine.dialect.name == "sqlite":
            connection.execute(text("PRAGMA ignore_check_constraints = ON"))
        row = {one.name: getattr(link(), one.name) for one in account_links.columns}
        connection.execute(insert(account_links), row)
        connection.execute(update(account_links).values({column: literal_column(value)}))
    with pytest.raises(Defect, match=r"register\.broken"):
        stored(ledger)


def test_the_migration_has_every_constraint_of_the_schema(engine: Engine) -> None:
    for name in ("account_links", "consents", "consent_projects", "register_head"):
        ours = {one.name for one in metadata.tables[name].constraints if isinstance(one, CheckConstraint)}
        assert {one["name"] for one in inspect(engine).get_check_constraints(name)} == ours
    [index] = inspect(engine).get_indexes("account_links")
    assert (index["name"], bool(index["unique"])) == ("uq_account_links_active", True)


def test_the_migration_can_be_taken_back_and_done_again(ledger: Ledger, engine: Engine) -> None:
    with ledger.begin() as tx:
        tx.put_consent(consent())
        tx.kill(switch())
        seal_anyhow(tx)
    for step in (command.downgrade, command.upgrade):
        with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
            config = Config()
            config.set_main_option("script_location", str(migrations_directory()))
            config.attributes["connection"] = connection
            step(config, "0002" if step is command.downgrade else "head")
    assert stored(ledger) == Register(0, switches=(switch(),))
