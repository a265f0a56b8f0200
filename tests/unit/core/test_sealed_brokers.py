"""Brokers on one database: each sees the others' changes, and nothing is sealed but what a change covers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from sealed_site import BEFORE, Site, put_both, throw, worked

from bridge.errors import Defect
from bridge.register import ConsentMode, LinkState, ProjectRef
from bridge.sealed import SealedRegister
from tests.register_example import (
    GITLAB,
    NOW,
    consent,
    link,
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
