"""Sixty-four threads act as two hundred people, and nobody is ever taken for somebody else; scripts/soak is longer."""

from __future__ import annotations

import pytest
from bridge_side import bridge_network

from realm import Realm
from tests.soak.tickets import AT_ONCE, Soak, crowd

PEOPLE, THREADS, ROUNDS, CONTEXTS_EACH = 200, 64, 5, 22


@pytest.mark.threat("T19")
def test_no_context_of_many_thousands_is_somebody_elses(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    with crowd(realm, PEOPLE) as people, bridge_network(realm, monkeypatch):
        figures = Soak(realm, people, CONTEXTS_EACH, seed=1).run(THREADS, lambda rounds: rounds < ROUNDS)
    assert figures.wrong == []
    assert figures.broken == []
    assert figures.contexts == THREADS * ROUNDS * AT_ONCE * CONTEXTS_EACH
    assert len(figures.people) == PEOPLE
    assert figures.refused > ROUNDS
    assert figures.cancelled > ROUNDS
