"""Tells ahead of time what of a bundle comes to an end: policies, rows and teams with a last day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Final

from bridge.policy import accounts
from bridge.policy.bundle import Bundle
from bridge.policy.calendar import ends_within, over
from bridge.policy.problems import Problem

AHEAD_DAYS: Final = 30


def ending(bundle: Bundle, at: datetime, days: int = AHEAD_DAYS) -> tuple[Problem, ...]:
    """One problem for all that counts no more at ``at``, or ends within ``days`` of it, on the site's calendar."""
    today = bundle.calendar.day(at)
    return tuple(
        Problem(file, line, f"{what} {'ended' if over(last, today) else 'ends'} with {last}")
        for file, line, what, last in _last_days(bundle)
        if ends_within(last, today, days)
    )


def _last_days(bundle: Bundle) -> Iterator[tuple[str, int | None, str, date | None]]:
    for info in bundle.policies.infos.values():
        yield info.file, info.line, f"the {info.effect} {info.policy_id}", info.expires
    for row in bundle.accounts.rows.values():
        yield accounts.FILE, None, f"the link of user {row.user_id} of {row.issuer} to {row.account}", row.expires
    for team in dict.fromkeys(bundle.accounts.teams.by_member.values()):
        yield accounts.FILE, None, f"the team of {team.account}", team.expires
