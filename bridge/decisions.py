"""A decision of admission as it is kept: the question, whole, so that it can be explained and asked again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """What was asked of policy, and what it said; the audit record of the same reference has the question's hash."""

    reference: str
    at: datetime
    issuer: str
    user_id: int
    project_id: int
    job_id: int
    account: str
    code: str
    """``allowed``, or the code of the refusal."""
    bundle_hash: str
    question: bytes
    """``policy.question.Question`` in its canonical JSON."""

    @property
    def question_sha256(self) -> str:
        """Hex; what the audit record of the decision has."""
        return hashlib.sha256(self.question).hexdigest()
