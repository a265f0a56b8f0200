"""The question that policy answers, whole and frozen: who asks to run as whom, where, with what, and when.

Its canonical JSON is kept with a decision, so that the same question can be asked again, of the same bundle or another.
Members that have their default are left out: a question of an earlier release stays what it was when later ones know
more of a job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import rfc8785
from pydantic import TypeAdapter, ValidationError

from bridge.errors import Defect
from bridge.model import Identity, PosixAccount, SlurmRequest


@dataclass(frozen=True, slots=True)
class Question:
    """May this person run as this account, on this cluster, with this much, at this moment?"""

    identity: Identity
    account: PosixAccount
    """As the directory has it now, and as ``accounts.resolve`` has found it fit."""
    cluster: str | None
    """Its name in ``clusters.toml``; None is the bundle's default."""
    request: SlurmRequest
    at: datetime
    """Aware; rules about hours and days, and those that expire, go by it."""

    def __post_init__(self) -> None:
        """Refuse a moment without a time zone: raises ValueError."""
        if self.at.tzinfo is None:
            raise ValueError("a question's moment has a time zone")

    def to_json(self) -> bytes:
        """RFC 8785; times in UTC."""
        utc = replace(
            self,
            at=self.at.astimezone(UTC),
            identity=replace(self.identity, token_expires_at=self.identity.token_expires_at.astimezone(UTC)),
        )
        return rfc8785.dumps(_ADAPTER.dump_python(utc, mode="json", exclude_defaults=True))

    @classmethod
    def from_json(cls, data: bytes) -> Question:
        """The question that ``to_json`` wrote; raises Defect ``policy.question_malformed`` for anything else."""
        try:
            question = _ADAPTER.validate_json(data, strict=True)
            if question.to_json() == data:
                return question
        except (ValidationError, ValueError) as error:
            raise _malformed(type(error).__name__) from error
        raise _malformed("not canonical")


_ADAPTER: Final = TypeAdapter(Question)


def _malformed(reason: str) -> Defect:
    return Defect(
        "policy.question_malformed",
        "A recorded question to the policy could not be read.",
        "Give the reference to the administrators of the bridge.",
        reason=reason,
    )
