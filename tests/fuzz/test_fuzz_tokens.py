"""Whole tokens at random, from a fixed seed: none is accepted, none breaks anything, none costs much."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, seed, settings

from bridge.errors import Outage
from bridge.model import SignedClaims, UnverifiedToken
from tests.fuzz.__main__ import main
from tests.fuzz.campaign import Campaign


@pytest.mark.threat("T1")
@pytest.mark.threat("T3")
@pytest.mark.threat("T38")
def test_no_forgery_is_accepted_and_every_one_is_a_cheap_refusal() -> None:
    campaign = Campaign()

    @seed(20261120)
    @settings(max_examples=1500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(campaign.forger.tokens())
    def attack(token: str) -> None:
        campaign.present(token)

    attack()
    assert campaign.tokens >= 1500
    assert campaign.codes.keys() >= {
        *("token.form", "token.header", "token.algorithm", "token.kid", "token.payload", "token.signature"),
        *("token.claim_malformed", "token.claim_missing", "token.issuer", "token.audience", "token.unknown_key"),
        *("token.expired", "token.not_yet", "token.too_old", "token.life", "token.size"),
    }


class Gullible:
    """A verifier that takes everything."""

    def verify(self, token: UnverifiedToken, now: object) -> SignedClaims:
        return SignedClaims({})


class Fragile(Gullible):
    """A verifier that breaks once it has seen the genuine token."""

    def __init__(self, error: Exception) -> None:
        self._errors = iter([None])
        self._error = error

    def verify(self, token: UnverifiedToken, now: object) -> SignedClaims:
        for _ in self._errors:
            return SignedClaims({})
        raise self._error


@pytest.mark.parametrize(
    ("verifier", "words"),
    [
        (Gullible(), "accepted"),
        (Fragile(ValueError("x")), "ValueError"),
        (Fragile(Outage("a.b", "x", "y")), "Outage"),
        (Fragile(RecursionError()), "RecursionError"),
    ],
    ids=["takes all", "foreign error", "outage", "recursion"],
)
def test_the_judge_sees_a_verifier_that_is_wrong(verifier: object, words: str) -> None:
    campaign = Campaign(verifier)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=words):
        campaign.present("a.b.c")


def test_the_command_reports_what_it_counted(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["tokens", "--minutes", "0.005", "--seed", "7", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["ok"], report["seed"], report["failure"]) == (0, True, 7, None)
    assert report["tokens"] == sum(report["codes"].values()) >= 100
