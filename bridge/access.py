"""What lets programs and browsers in after a person has shown who they are: API tokens, and when sessions were ended.

Both say who may call, so both are in the register, under the broker's seal. A session itself is in no table: it is a
sealed token in a browser, and counts as long as its epoch is that of its principal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

MAX_TOKEN_LIFE: Final = timedelta(days=366)
"""No API token is good for longer."""

FIRST_EPOCH: Final = 0
"""Of a principal whose sessions nobody has ended yet."""


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A secret with which a program calls in a person's name, with a part of their roles."""

    token_id: str
    """Also the reference of its audit records."""
    secret_hash: str = field(repr=False)
    """Hex SHA-256 of the whole secret, ``cib_`` and all."""
    principal: str
    scopes: tuple[str, ...]
    """Values of ``policy.roles.Role``, sorted; what counts is which of them the principal has when it is used."""
    note: str
    """What it is for, in its owner's words."""
    created_by: str
    """The same as ``principal``: nobody makes one for somebody else."""
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    def in_force(self, now: datetime) -> bool:
        """Whether it counts at that moment."""
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class SessionEpoch:
    """All sessions of a principal that were opened in an earlier epoch are over."""

    principal: str
    epoch: int
    """Counted up by one each time."""
    changed_by: str
    changed_at: datetime
