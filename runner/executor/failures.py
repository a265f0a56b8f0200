"""What the executor raises when a call can't go well, and how that becomes one of GitLab Runner's exit codes.

Exit codes come from the environment (GitLab Runner, executors/custom/api: ``BUILD_FAILURE_EXIT_CODE``,
``SYSTEM_FAILURE_EXIT_CODE``): a refusal or a cancel is a BUILD failure, which the runner does not retry; an outage or a
defect is a SYSTEM failure, which it may.
"""

from __future__ import annotations

from collections.abc import Mapping

REFUSED = "refused"
OUTAGE = "outage"
CANCELLED = "cancelled"


class CallFailed(Exception):
    """The call ends here; ``outcome`` is one of REFUSED, OUTAGE, CANCELLED.

    code: stable dotted name. title: one sentence. remedy: one sentence, what to do now. reference: id under which the
    bridge logged it, or empty.
    """

    def __init__(self, outcome: str, code: str, title: str, remedy: str, reference: str = "") -> None:
        super().__init__(f"{code}: {title}")
        self.outcome = outcome
        self.code = code
        self.title = title
        self.remedy = remedy
        self.reference = reference


class Unreachable(Exception):
    """The bridge did not answer, or asked to be tried again later; the same request may be repeated.

    failure: how the call ends where repeating does not help, if the bridge itself said what is down.
    """

    def __init__(self, reason: str, failure: CallFailed | None = None) -> None:
        super().__init__(reason)
        self.failure = failure


class BadEnvironment(Exception):
    """The two exit codes are not in the environment, so no failure can be told properly."""


class ExitCodes:
    """GitLab Runner's two exit codes for this call."""

    __slots__ = ("build", "system")

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read both codes from the environment; raises BadEnvironment."""
        self.build = _code(environ, "BUILD_FAILURE_EXIT_CODE")
        self.system = _code(environ, "SYSTEM_FAILURE_EXIT_CODE")

    def of(self, outcome: str) -> int:
        """Give the exit code for an outcome that is not success."""
        return self.system if outcome == OUTAGE else self.build


def _code(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit() and 0 < int(text[:4]) < 256):
        raise BadEnvironment(f"{name} is not set to an exit code; was this started by GitLab Runner?")
    return int(text)


def refused(code: str, title: str, remedy: str) -> CallFailed:
    """Make the failure for a no of the executor's own."""
    return CallFailed(REFUSED, code, title, remedy)


def outage(code: str, title: str, remedy: str) -> CallFailed:
    """Make the failure for something that is down or set up wrongly."""
    return CallFailed(OUTAGE, code, title, remedy)
