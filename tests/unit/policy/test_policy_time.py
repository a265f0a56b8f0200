"""The moment of a question: hours and days at the site, last days of policies, rows and teams, and the check's word."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_examples import ALICE, ISSUER, identity, question, resolve, texts
from test_policy_engine import EVERYBODY, NOBODY, decide, engine_of, refusal

from bridge.errors import PolicyRefused
from bridge.model import PosixAccount
from bridge.policy.bundle import Bundle, parse_bundle
from bridge.policy.calendar import Calendar, number_of
from bridge.policy.engine import Engine
from bridge.policy.expiry import ending
from bridge.policy.problems import InvalidBundle
from bridge.policy.question import Question

ZURICH = Calendar.of("Europe/Zurich")


def at(text: str) -> datetime:
    """An aware moment."""
    return datetime.fromisoformat(text)


MOMENTS = [
    ("2026-11-18T12:00:00+00:00", {"date": 20261118, "weekday": 3, "hour": 13, "minute_of_day": 780}),
    ("2026-12-31T22:59:59+00:00", {"date": 20261231, "weekday": 4, "hour": 23, "minute_of_day": 1439}),
    ("2026-12-31T23:00:00+00:00", {"date": 20270101, "weekday": 5, "hour": 0, "minute_of_day": 0}),
    # Clocks go forward: after 01:59 comes 03:00.
    ("2027-03-28T00:59:59+00:00", {"date": 20270328, "weekday": 7, "hour": 1, "minute_of_day": 119}),
    ("2027-03-28T01:00:00+00:00", {"date": 20270328, "weekday": 7, "hour": 3, "minute_of_day": 180}),
    # And back: 02:30 comes twice.
    ("2027-10-31T00:30:00+00:00", {"date": 20271031, "weekday": 7, "hour": 2, "minute_of_day": 150}),
    ("2027-10-31T01:30:00+00:00", {"date": 20271031, "weekday": 7, "hour": 2, "minute_of_day": 150}),
    ("2027-10-31T02:00:00+00:00", {"date": 20271031, "weekday": 7, "hour": 3, "minute_of_day": 180}),
]


@pytest.mark.parametrize(("moment", "facts"), MOMENTS)
def test_policies_see_the_clock_on_the_sites_wall(moment: str, facts: dict[str, int]) -> None:
    assert ZURICH.facts(at(moment)) == facts


@given(st.integers(0, 2**32), st.integers(-14, 14))
def test_one_moment_is_the_same_whatever_offset_it_is_written_with(seconds: int, hours: int) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    assert ZURICH.facts(moment.astimezone(timezone(timedelta(hours=hours)))) == ZURICH.facts(moment)


@given(st.dates(), st.dates())
def test_days_as_numbers_keep_their_order(one: date, other: date) -> None:
    assert (number_of(one) < number_of(other)) is (one < other)


@pytest.mark.threat("T48")
def test_a_question_without_a_time_zone_is_never_asked() -> None:
    with pytest.raises(ValueError, match="time zone"):
        question(at=datetime(2026, 11, 18, 12))  # noqa: DTZ001


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../../etc/passwd", "/etc/localtime", "", "europe zurich"])
def test_a_time_zone_that_is_none_is_refused_with_its_line(zone: str) -> None:
    limits = texts()["limits.toml"].replace("Europe/Zurich", zone)
    with pytest.raises(InvalidBundle) as caught:
        parse_bundle(texts() | {"limits.toml": limits})
    assert [str(one).partition(": ")[0] for one in caught.value.problems] == ["limits.toml:5"]


def test_without_a_time_zone_hours_are_those_of_utc() -> None:
    limits = texts()["limits.toml"].replace('[time]\nzone = "Europe/Zurich"\n', "")
    morning = EVERYBODY.replace(";", " when { context.hour == 12 };")
    assert decide(engine_of(morning, limits=limits)).policy_ids == ("everybody",)
    assert refusal(engine_of(morning)).code == "policy.no_permit"


UNTIL = '@expires("2027-01-31") '
LAST_EVENING, MORNING_AFTER = at("2027-01-31T23:59:59+01:00"), at("2027-02-01T00:00:00+01:00")


@pytest.mark.threat("T18")
@pytest.mark.threat("T48")
@pytest.mark.parametrize(
    "policy",
    [
        UNTIL + EVERYBODY,
        UNTIL + EVERYBODY.replace(";", " when { true };"),
        UNTIL + EVERYBODY.replace(";", " unless { false } ;"),
        UNTIL + EVERYBODY.replace(";", " when { context.ref_protected || true } // for now\n;"),
        UNTIL + EVERYBODY.replace(";", " when { context.ref != \";\" };"),
    ],
)  # fmt: skip
def test_a_permit_never_counts_after_its_last_day(policy: str) -> None:
    engine = engine_of(policy)
    assert decide(engine, at=LAST_EVENING).policy_ids == ("everybody",)
    for moment in (MORNING_AFTER, at("2027-01-31T23:00:00+00:00"), MORNING_AFTER + timedelta(days=4000)):
        assert refusal(engine, at=moment).code == "policy.no_permit"


@pytest.mark.threat("T48")
def test_of_two_policies_on_one_line_only_the_one_that_says_so_ends() -> None:
    lasting = EVERYBODY.replace('"everybody"', '"lasting"')
    for line in (f"{UNTIL}{EVERYBODY} {lasting}", f"{lasting} {UNTIL}{EVERYBODY}"):
        engine = engine_of(line)
        assert decide(engine, at=LAST_EVENING).policy_ids == ("everybody", "lasting")
        assert decide(engine, at=MORNING_AFTER).policy_ids == ("lasting",)


def test_a_forbid_lapses_with_its_last_day() -> None:
    engine = engine_of(EVERYBODY, UNTIL + NOBODY)
    assert refusal(engine, at=LAST_EVENING).code == "policy.forbidden"
    assert decide(engine, at=MORNING_AFTER).policy_ids == ("everybody",)


@pytest.mark.parametrize("day", ["", "2027-02-31", "2027-1-1", "27-01-31", "2027-01-31T00:00:00", "20270131", "soon"])
def test_a_last_day_that_is_none_is_an_error(day: str) -> None:
    with pytest.raises(InvalidBundle):
        engine_of(UNTIL.replace("2027-01-31", day) + EVERYBODY)


def linked(expires: str) -> Bundle:
    """The shipped bundle with a last day for alice's row."""
    accounts = texts()["accounts.toml"].replace('note = "group chem"', f'note = "group chem"\nexpires = {expires}')
    return parse_bundle(texts() | {"accounts.toml": accounts})


class _Known:
    def lookup(self, name: str) -> PosixAccount:
        return replace(ALICE, name=name)


@pytest.mark.threat("T11")
@pytest.mark.threat("T18")
def test_a_link_never_counts_after_its_last_day() -> None:
    bundle = linked("2027-01-31")
    assert resolve(bundle.accounts, _Known(), identity(), bundle.calendar.day(LAST_EVENING)).name == "alice"
    with pytest.raises(PolicyRefused) as caught:
        resolve(bundle.accounts, _Known(), identity(), bundle.calendar.day(MORNING_AFTER))
    assert caught.value.code == "account.expired"


@pytest.mark.parametrize("value", ['"2027-01-31"', "2027-01-31T00:00:00Z", "20270131", "true"])
def test_a_links_last_day_is_a_day(value: str) -> None:
    with pytest.raises(InvalidBundle):
        linked(value)


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (at("2026-12-31T23:59:59+01:00"), []),
        (at("2027-01-01T00:00:00+01:00"), ["ends"]),
        (LAST_EVENING, ["ends"]),
        (MORNING_AFTER, ["ended"]),
    ],
    ids=str,
)
def test_the_check_warns_ahead_of_what_ends(moment: datetime, said: list[str]) -> None:
    found = [str(one) for one in ending(linked("2027-01-31"), moment) if "user 101" in str(one)]
    assert found == [
        f"accounts.toml: the link of user 101 of {ISSUER} to alice {word} with 2027-01-31" for word in said
    ]


def test_policies_and_teams_that_end_are_named_with_their_place(bundle: Bundle) -> None:
    found = [str(one) for one in ending(bundle, at("2028-01-01T00:00:00+01:00"))]
    assert any(one.startswith("research.cedar:") and "gpu-course ended with 2027-06-30" in one for one in found)
    assert "accounts.toml: the team of svc-chem ended with 2027-12-31" in found


NIGHT: list[tuple[str, dict[str, Any], str]] = [
    ("2026-07-15T06:59:59+02:00", {}, "allowed"),
    ("2026-07-15T07:00:00+02:00", {}, "policy.forbidden"),
    ("2026-07-15T18:59:59+02:00", {}, "policy.forbidden"),
    ("2026-07-15T19:00:00+02:00", {}, "allowed"),
    # Winter: the same hour on the wall is another one in UTC.
    ("2026-01-14T17:59:59+00:00", {}, "policy.forbidden"),
    ("2026-01-14T18:00:00+00:00", {}, "allowed"),
    # The Saturday before clocks go forward, and the Monday after.
    ("2027-03-27T12:00:00+01:00", {}, "allowed"),
    ("2027-03-29T07:00:00+02:00", {}, "policy.forbidden"),
    # Friday night, and Monday morning.
    ("2026-11-20T23:59:59+01:00", {}, "allowed"),
    ("2026-11-23T07:00:00+01:00", {}, "policy.forbidden"),
    ("2026-11-23T07:00:00+01:00", {"nodes": 4}, "allowed"),
]


@pytest.mark.parametrize(("moment", "asked", "expected"), NIGHT)
def test_wide_jobs_wait_for_the_night_at_the_site(
    engine: Engine, moment: str, asked: dict[str, int], expected: str
) -> None:
    base = question(at=at(moment))
    request = replace(base.request, partition="production", nodes=asked.get("nodes", 5))
    try:
        engine.decide(Question(base.identity, base.account, None, request, base.at))
        got = "allowed"
    except PolicyRefused as error:
        got = error.code
    assert got == expected
