"""An emergency on a bridge that never activated anything can be ended early, and leaves it as it was before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from bench import Broker, refused
from policy_site import emergency, hash_now, texts, who

from bridge.proposals import NUMBER_OF_NONE


@pytest.fixture
def site(broker: Broker) -> Broker:
    """A broker that goes by the directory of its settings."""
    broker.use_texts(texts())
    return broker


@pytest.mark.threat("T40")
def test_who_may_roll_back_ends_it_before_its_time(site: Broker) -> None:
    before = hash_now(site)
    over = emergency(site, texts("two"))
    assert hash_now(site) == over.content_hash
    back = site.activating.roll_back(who(site, "olga/admin"), before, "the fire is out")
    assert (back.number, back.content_hash, hash_now(site)) == (NUMBER_OF_NONE, before, before)
    (record,) = site.records(type="policy", phase="ok")[-1:]
    assert (record["detail"]["act"], record["detail"]["by"]) == ("roll_back", "olga/admin@REALM.TEST")
    assert (record["detail"]["before"], record["detail"]["ended"]) == (over.content_hash, str(over.number))


def test_the_directory_counts_as_before(site: Broker) -> None:
    before = hash_now(site)
    emergency(site, texts("two"))
    site.activating.roll_back(who(site, "ben/admin"), before, "out")
    site.use_texts(texts("the next"))
    assert hash_now(site) != before


@pytest.mark.threat("T40")
def test_what_lay_under_it_and_what_waits_for_a_second_operator_is_over_too(site: Broker) -> None:
    before = hash_now(site)
    emergency(site, texts("one"), minutes=60)
    emergency(site, texts("two"), minutes=60)
    waits = site.activating.break_glass(who(site, "olga/admin"), 60, "more", files=texts("three"))
    site.activating.roll_back(who(site, "omar/admin"), before, "out")
    assert hash_now(site) == before
    late = refused(lambda: site.activating.confirm(who(site, "omar/admin"), waits.number, waits.content_hash))
    assert late.code == "policy.emergency_over"
    site.clock.shift = -timedelta(minutes=2)
    assert hash_now(site) == before


@pytest.mark.threat("T40")
def test_nothing_else_is_opened_by_it(site: Broker) -> None:
    before = hash_now(site)
    olga = who(site, "olga/admin")
    assert refused(lambda: site.activating.roll_back(olga, before, "now")).code == "policy.in_force"
    over = emergency(site, texts("two"))
    for other in ("0" * 64, over.content_hash):
        assert refused(lambda one=other: site.activating.roll_back(olga, one, "now")).code == "policy.never_active"
    assert refused(lambda: site.activating.roll_back(who(site, "vic"), before, "now")).code == "caller.role"
    assert hash_now(site) == over.content_hash
