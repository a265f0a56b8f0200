"""One use of a token: which second presentation is the runner's own retry, and which is a replay.

GitLab Runner calls config up to three times for one job when config or prepare fail as an outage, with the same
id_token and the same CI_JOB_TOKEN, and with cleanup in between. That is let through, for the same run, until a stage
with the user's own code was submitted. Everything else that shows a used (iss, jti) is refused, and so is another token
for a job that has its run: one job, one run.

The rule is here, pure; the ledger applies it inside the transaction that writes the intent.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from bridge.model import RunId
from bridge.oidc.refusal import token_refused

MAX_ATTEMPTS: Final = 4
"""The runner makes 3 (common/build.go, preparation attempts); one more for an answer that was lost on its way."""

KEEP_AFTER_EXPIRY: Final = timedelta(hours=1)
"""A used token is remembered this long past exp, well over the verifier's leeway."""

_USER_CODE: Final = frozenset({"build_script", "step_script", "after_script"})


@dataclass(frozen=True, slots=True)
class Presented:
    """What is shown now, after every other check."""

    jti: str
    job_id: int
    job_token_hash: bytes


@dataclass(frozen=True, slots=True)
class Used:
    """What was shown before for the same (iss, jti), or for the same (iss, job)."""

    run_id: RunId
    jti: str
    job_id: int
    job_token_hash: bytes
    attempt: int
    user_code_submitted: bool


def next_attempt(presented: Presented, used: Used | None) -> int:
    """The number of the attempt that may begin: 1 for a token that was never used.

    Raises TokenRefused ``token.replayed``.
    """
    if used is None:
        return 1
    if used.jti != presented.jti or used.job_id != presented.job_id:
        raise token_refused("replayed", "the job was admitted with another token", run_id=used.run_id)
    if not hmac.compare_digest(used.job_token_hash, presented.job_token_hash):
        raise token_refused("replayed", "the token was used with another job token", run_id=used.run_id)
    if used.user_code_submitted:
        raise token_refused("replayed", "the job's own code was submitted already", run_id=used.run_id)
    if used.attempt >= MAX_ATTEMPTS:
        raise token_refused("replayed", f"more than {MAX_ATTEMPTS} attempts", run_id=used.run_id)
    return used.attempt + 1


def holds_user_code(stage: str) -> bool:
    """Whether a stage of the custom executor runs what the project wrote; after it there is no retry of config."""
    return stage in _USER_CODE or stage.startswith("step_")
