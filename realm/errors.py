"""The errors of the pocket realm: each has a stable code, one sentence and a remedy."""

from __future__ import annotations


class RealmError(Exception):
    """A realm could not do what was asked.

    `code` is stable and dotted, `detail` is one sentence, `remedy` says what to do next, `evidence` the end of a log.
    """

    def __init__(self, code: str, detail: str, *, remedy: str, evidence: str = "") -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.remedy = remedy
        self.evidence = evidence

    def __str__(self) -> str:
        text = f"{self.code}: {self.detail} Next: {self.remedy}"
        return f"{text}\n{self.evidence}" if self.evidence else text
