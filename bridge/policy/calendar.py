"""A moment as people at the site read it off the clock and the calendar: in the time zone that the bundle names.

The rules of a zone are those of the host's tzdata, which are no part of the bundle's hash.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

NO_ZONE: Final = "UTC"
"""Where a bundle names none."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Days and hours of one time zone."""

    zone: zoneinfo.ZoneInfo

    @classmethod
    def of(cls, name: str) -> Calendar:
        """The calendar of an IANA time zone, e.g. ``Europe/Zurich``; raises ValueError where this host has none."""
        try:
            return cls(zoneinfo.ZoneInfo(name))
        except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {name!r} on this host (tzdata)") from error

    def local(self, at: datetime) -> datetime:
        """``at``, which is aware, on the site's clock."""
        return at.astimezone(self.zone)

    def day(self, at: datetime) -> date:
        """The site's date at that moment."""
        return self.local(at).date()

    def facts(self, at: datetime) -> dict[str, int]:
        """What policies can ask about a moment; the date as a number that grows with it, e.g. 20270131."""
        local = self.local(at)
        return {
            "date": number_of(local.date()),
            "weekday": local.isoweekday(),
            "hour": local.hour,
            "minute_of_day": local.hour * 60 + local.minute,
        }


def number_of(day: date) -> int:
    """The day as policies write it: 20270131."""
    return (day.year * 100 + day.month) * 100 + day.day


def over(expires: date | None, today: date) -> bool:
    """Whether a rule whose last day is ``expires`` counts no more; one without never ends."""
    return expires is not None and today > expires


def ends_within(expires: date | None, today: date, days: int) -> bool:
    """Whether its last day is past, or one of the next ``days``."""
    return expires is not None and expires <= today + timedelta(days=days)
