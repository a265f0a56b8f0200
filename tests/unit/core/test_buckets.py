"""Token buckets: a burst, then a rate, each name for itself, in bounded memory."""

from __future__ import annotations

import pytest

from bridge.buckets import TokenBuckets


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        return self.now


def taken(buckets: TokenBuckets, name: str, tries: int) -> int:
    return sum(buckets.take(name) for _ in range(tries))


@pytest.mark.parametrize(
    ("burst", "per_second", "pause", "first", "later"),
    [
        (1, 1.0, 0.5, 1, 0),
        (1, 1.0, 1.0, 1, 1),
        (10, 1 / 60, 59.0, 10, 0),
        (10, 1 / 60, 60.0, 10, 1),
        (1000, 20.0, 1.0, 1000, 20),
        (1000, 20.0, 50.0, 1000, 1000),
        (1000, 20.0, 1e6, 1000, 1000),
    ],
)
def test_a_burst_then_a_rate(burst: int, per_second: float, pause: float, first: int, later: int) -> None:
    clock = Seconds()
    buckets = TokenBuckets(burst, per_second, clock=clock)
    assert taken(buckets, "node1", 2 * burst + 50) == first
    clock.now += pause
    assert taken(buckets, "node1", 2 * burst + 50) == later


def test_a_refusal_costs_nothing() -> None:
    clock = Seconds()
    buckets = TokenBuckets(2, 1.0, clock=clock)
    taken(buckets, "node1", 100)
    clock.now += 1.0
    assert taken(buckets, "node1", 100) == 1


def test_one_name_does_not_spend_anothers() -> None:
    buckets = TokenBuckets(3, 1.0, clock=Seconds())
    assert [taken(buckets, name, 5) for name in ("node1", "node2", "node1")] == [3, 3, 0]


@pytest.mark.threat("T38")
def test_names_beyond_the_bound_share_a_bucket_until_others_are_full_again() -> None:
    clock = Seconds()
    buckets = TokenBuckets(2, 1.0, clock=clock, most_names=3)
    assert [taken(buckets, f"node{number}", 5) for number in range(3)] == [2, 2, 2]
    assert [taken(buckets, f"stranger{number}", 5) for number in range(4)] == [2, 0, 0, 0]
    clock.now += 2.0
    assert taken(buckets, "late", 5) == 2
