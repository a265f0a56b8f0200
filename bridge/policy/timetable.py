"""Representative days and times of day, made from what policies say of the clock, the calendar and their last day."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final

from bridge.policy.calendar import Calendar

DAY: Final = "day"
"""A variable: the site's date, as ``"2026-11-21"``."""
TIME: Final = "time"
"""A variable: the minute of the site's day; noon where no policy asks."""
READS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"hour": (TIME,), "minute_of_day": (TIME,), "weekday": (DAY,), "date": (DAY,)}
)
"""What of the context follows from which variable (``calendar.Calendar.facts``)."""

_NOON: Final = 12 * 60
_LAST: Final = 24 * 60 - 1
_ONE: Final = timedelta(days=1)


def days(today: date, compared: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Today, later days around those that policies name, and a whole week where they ask for weekdays."""
    found = [today]
    if "weekday" in compared:
        found += [today + number * _ONE for number in range(1, 7)]
    for day in sorted(filter(None, map(_day, _numbers(compared, "date")))):
        found += [near for near in (day - _ONE, day, day + _ONE) if near > today]
    return tuple(dict.fromkeys(json.dumps(day.isoformat()) for day in found))


def times(compared: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Noon, and the minutes around those that policies name."""
    minutes = [value for hour in _numbers(compared, "hour") for value in (hour * 60, hour * 60 + 60)]
    minutes += _numbers(compared, "minute_of_day")
    near = sorted({one for minute in minutes for one in (minute - 1, minute, minute + 1) if 0 <= one <= _LAST})
    return tuple(dict.fromkeys(map(str, [_NOON, *near])))


def moment(choice: Mapping[str, str], today: date, calendar: Calendar) -> datetime:
    """The moment that a situation says."""
    day = day_of(choice[DAY]) if DAY in choice else today
    minute = int(choice.get(TIME, _NOON))
    return datetime.combine(day, time(minute // 60, minute % 60), calendar.zone)


def day_of(value: str) -> date:
    """The date that a value of ``DAY`` stands for."""
    return date.fromisoformat(json.loads(value))


def _numbers(compared: Mapping[str, Iterable[str]], name: str) -> list[int]:
    return [value for value in map(json.loads, compared.get(name, ())) if isinstance(value, int)]


def _day(number: int) -> date | None:
    try:
        return date(number // 10_000, number // 100 % 100, number % 100)
    except ValueError:
        return None
