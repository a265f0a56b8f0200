"""What a check found: one line for a person, one object for a machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """Works, and is weaker or looser than it could be; the exit code stays 0."""
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of one thing."""

    check: str
    """Name of the check, stable: ``issuer-keys``."""
    subject: str
    """Which issuer, account or file."""
    state: State
    detail: str
    """What was seen, one sentence or less; no secrets."""
    remedy: str = ""
    """What to do now; there is one unless the state is OK."""

    def __post_init__(self) -> None:
        if self.state is not State.OK and not self.remedy:
            raise ValueError(f"{self.check}: a finding without a remedy")


def ok(check: str, subject: str, detail: str) -> Finding:
    """All is well."""
    return Finding(check, subject, State.OK, detail)


def failed(check: str, subject: str, detail: str, remedy: str) -> Finding:
    """Something is wrong, and jobs will be refused for it."""
    return Finding(check, subject, State.FAILED, detail, remedy)


def warning(check: str, subject: str, detail: str, remedy: str) -> Finding:
    """Jobs run, but a guard is weaker than it should be."""
    return Finding(check, subject, State.WARNING, detail, remedy)


def not_checked(check: str, subject: str, detail: str, remedy: str) -> Finding:
    """Could not be looked at from here; ``remedy`` says from where it can."""
    return Finding(check, subject, State.NOT_CHECKED, detail, remedy)
