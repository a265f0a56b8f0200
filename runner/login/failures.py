"""What a verb of the login agent raises when it can't be done, as the bridge gets to see it."""

from __future__ import annotations


class VerbFailed(Exception):
    """The request ends with an error.

    code: stable dotted name. title: one sentence. remedy: one sentence, what to do now. detail: what a tool said, for
    the bridge's log only.
    """

    def __init__(self, code: str, title: str, remedy: str, detail: str = "") -> None:
        super().__init__(f"{code}: {title}")
        self.code = code
        self.title = title
        self.remedy = remedy
        self.detail = detail


def foreign(what: str) -> VerbFailed:
    """Make the error for something in the way that is not the user's own directory or file."""
    return VerbFailed(
        "workspace.foreign",
        f"{what} is a link, is not a directory, or belongs to someone else.",
        "Look at it on the login node and move it away; the bridge does not touch it.",
    )


def malformed(what: str) -> VerbFailed:
    """Make the error for a request that is not in the contract."""
    return VerbFailed("agent.request", f"The request is malformed: {what}.", "Bridge and login agent must fit.")
