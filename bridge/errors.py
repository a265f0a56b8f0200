"""Every way in which the bridge says no, as one tree of errors.

    BridgeError
    +-- Refused        the answer is no, and asking again will not change it   (GitLab: BUILD failure, no retry)
    |   +-- TokenRefused      the evidence is not a live, genuine job          (HTTP 401)
    |   +-- PolicyRefused     a known person may not do this                   (HTTP 403)
    |   +-- RequestRefused    the request itself is malformed                  (HTTP 422)
    |   +-- Conflict          something like it exists already                 (HTTP 409)
    |   +-- NotFound                                                           (HTTP 404)
    +-- Outage         something that we need is down; a retry may work        (GitLab: SYSTEM failure; HTTP 503)
    |   +-- TooMany           the caller asks more than its share, for now     (HTTP 429)
    +-- Defect         we broke one of our own rules: stop, never go on        (GitLab: SYSTEM failure; HTTP 500)

``code`` is stable and dotted, ``title`` one sentence and ``remedy`` what to do about it: these three, and a reference
id, are all that a caller sees. ``context`` is for the audit log only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self


class BridgeError(Exception):
    """Root of the tree; raise one of its leaves.

    code: stable dotted name, e.g. ``account.not_mapped``. title: one sentence, safe for the person who pushed.
    remedy: one sentence, what to do now. context: details for the audit log; never shown to the caller.
    """

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, code: str, title: str, remedy: str, **context: object) -> None:
        super().__init__(f"{code}: {title}")
        self.code = code
        self.title = title
        self.remedy = remedy
        self.context: Mapping[str, object] = MappingProxyType(context)

    def referenced(self, reference: str) -> Self:
        """Add the reference id under which the audit log has the details, unless there is one; return self."""
        self.context = MappingProxyType({"reference": reference} | dict(self.context))
        return self

    def because(self, *sentences: str) -> Self:
        """Put sentences that explain it before the remedy; return self. They are for whoever sees the remedy."""
        self.remedy = " ".join([*sentences, self.remedy])
        return self

    @property
    def reference(self) -> str | None:
        """The reference id, once somebody has recorded the error."""
        found = self.context.get("reference")
        return None if found is None else str(found)


class Refused(BridgeError):
    """No, and asking again will not change it."""

    status = 403


class TokenRefused(Refused):
    """The evidence does not show a live, genuine job."""

    status = 401


class PolicyRefused(Refused):
    """The person is known, and policy does not let them do this."""

    status = 403


class RequestRefused(Refused):
    """The request is malformed or out of bounds."""

    status = 422


class Conflict(Refused):
    """It exists already, or is in a state in which this can't be done."""

    status = 409


class NotFound(Refused):
    """There is no such thing, or it is not the caller's."""

    status = 404


class Outage(BridgeError):
    """Something that the bridge needs is down or too slow; nothing was done, and a retry may work."""

    status = 503
    retryable = True


class TooMany(Outage):
    """The caller asks more than its share; nothing was done, and a retry in a moment may work (RFC 6585 section 4)."""

    status = 429


class Defect(BridgeError):
    """One of the bridge's own rules was broken; what was going on stops here."""

    status = 500
