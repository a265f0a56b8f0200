"""How this room says no: one title and one remedy for every refused token, the detail for the audit log only.

A caller that can tell two reasons apart by more than the code learns which of its forgeries came closer, so the
sentence is the same for all of them.
"""

from __future__ import annotations

from typing import Final

from bridge.errors import TokenRefused

_NOT_ACCEPTED = "The id_token of this job was not accepted."
_CHECK_AND_REPEAT = (
    "Check that the job has an id_tokens: block with the audience of the bridge, then run it again; "
    "if it is refused again, give the reference to the administrators of the bridge."
)
ADD_THE_BLOCK: Final = (
    "Add an id_tokens: block with the bridge's audience to the job in .gitlab-ci.yml, then run the job again."
)
_NOT_CONFIRMED = "GitLab does not confirm that this job is running as it was presented."
_REPEAT = (
    "Run the job again from GitLab; if it is refused again, give the reference to the administrators of the bridge."
)


def token_refused(reason: str, detail: str, **context: object) -> TokenRefused:
    """The refusal ``token.<reason>``; ``detail`` says for the audit log what was got and what was expected."""
    return TokenRefused(f"token.{reason}", _NOT_ACCEPTED, _CHECK_AND_REPEAT, detail=detail, **context)


def job_refused(reason: str, detail: str, **context: object) -> TokenRefused:
    """The refusal ``job.<reason>``; ``detail`` is for the audit log."""
    return TokenRefused(f"job.{reason}", _NOT_CONFIRMED, _REPEAT, detail=detail, **context)
