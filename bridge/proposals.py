"""How a policy bundle comes into force: somebody proposes it, somebody else approves it, and it is activated.

A bundle is named by the hash of its content, so that an approval is of that content and of no other. What is in force
is the newest activation; going back is an activation too. All of it is in the register, under the broker's seal.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

APPROVAL_LIFE: Final = timedelta(days=14)
"""After this an approved proposal has to be approved again."""

EMERGENCY_LIFE: Final = timedelta(hours=4)
"""The longest that bundles can be in force which nobody approved in the usual way, in any one day."""

EMERGENCY_WINDOW: Final = timedelta(days=1)

CLOCK_ALLOWANCE: Final = timedelta(minutes=5)
"""The brokers' clocks may differ by this much."""

NUMBER_OF_NONE: Final = 0
"""Stands for the activation where the bundle of the settings' directory is in force still."""


class ProposalState(enum.StrEnum):
    """``DRAFT -> SUBMITTED -> APPROVED -> ACTIVATED``; REJECTED and WITHDRAWN are the other ends.

    New content makes a draft of everything that is not at an end.
    """

    DRAFT = "draft"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    ACTIVATED = "activated"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


OPEN_STATES: Final = frozenset({ProposalState.DRAFT, ProposalState.SUBMITTED, ProposalState.APPROVED})


@dataclass(frozen=True, slots=True)
class Proposal:
    """Somebody's wish that a bundle be in force."""

    proposal_id: str
    """Also the reference of its audit records."""
    content_hash: str
    """Hex SHA-256 of the bundle."""
    base_hash: str
    """Of the bundle that was in force when it was written or submitted; it is activated over no other."""
    base_number: int
    """Of that bundle's activation: a bundle that came into force again is another base, as its roles were away."""
    author: str
    title: str
    state: ProposalState
    version: int
    """Counted up with each change: the entity tag."""
    created_at: datetime
    changed_at: datetime
    decided_by: str | None = None
    """Who approved or rejected it; never its author."""
    decided_at: datetime | None = None
    reason: str = ""
    """Of the decision."""
    activated_by: str | None = None


class ActivationKind(enum.StrEnum):
    """Why a bundle came into force."""

    ACTIVATE = "activate"
    """Proposed and approved."""
    ROLL_BACK = "roll_back"
    """It was in force before."""
    BREAK_GLASS = "break_glass"
    """Two operators, in an emergency, for some hours."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A bundle comes into force."""

    number: int
    """Counted up from 1."""
    content_hash: str
    kind: ActivationKind
    by: str
    reason: str
    at: datetime
    proposal_id: str | None = None
    second: str | None = None
    """The other operator of a BREAK_GLASS; it is not in force without one."""
    ends_at: datetime | None = None
    """Of a BREAK_GLASS; after it the bundle before it is in force again."""

    @property
    def is_emergency(self) -> bool:
        """Whether nobody approved it in the usual way."""
        return self.kind is ActivationKind.BREAK_GLASS

    def in_force(self, now: datetime, latest: datetime) -> bool:
        """Whether it counts ``now``; ``latest`` is the latest moment that is known to have been.

        An emergency that is over stays over when a clock is set back, and one that a wrong clock dated into the
        future has not begun.
        """
        if not self.is_emergency:
            return True
        if self.second is None or self.ends_at is None:
            return False
        return self.at <= now + CLOCK_ALLOWANCE and max(now, latest) < self.ends_at


def approved(activations: Iterable[Activation]) -> Activation | None:
    """The newest activation that is no emergency's: it says who may change policy, whatever an emergency brings."""
    return max((one for one in activations if not one.is_emergency), key=lambda one: one.number, default=None)


def in_force(activations: Iterable[Activation], now: datetime, latest: datetime) -> Activation | None:
    """The newest activation that counts; None where the bundle of the settings' directory is in force still."""
    return max((one for one in activations if one.in_force(now, latest)), key=lambda one: one.number, default=None)


def emergency_time(activations: Iterable[Activation], since: datetime) -> timedelta:
    """How much time after ``since`` was given to emergencies that two operators confirmed."""
    return sum(
        (
            one.ends_at - max(one.at, since)
            for one in activations
            if one.second is not None and one.ends_at is not None and one.ends_at > since
        ),
        timedelta(0),
    )


def person_of(principal: str) -> str:
    """Whose principal it is: ``alice@R`` and ``alice/admin@R`` are one person, and so is ``Alice@R``.

    The instance of a principal is by convention another hat of the same person; and Active Directory takes names
    without regard to case (MS-KILE section 3.3.5.6.1).
    """
    name, _, realm = principal.rpartition("@")
    return f"{name.partition('/')[0]}@{realm}".casefold()
