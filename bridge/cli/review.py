"""What an approver sees before they say yes, worked out here, from the very files whose hash is then sent.

Files that are not those of the hash are found out here (T40), so that web can show nobody something harmless in place
of what is approved. It could still pass another hash on to the broker with the approver's credential, as
docs/security.md says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from bridge.cli.output import safe
from bridge.cli.remote import Remote
from bridge.errors import BridgeError, Conflict, Defect, RequestRefused
from bridge.people.bundling import accepted
from bridge.people.policy_reading import Standing
from bridge.policy.bundle import Bundle, checked_bundle
from bridge.policy.difference import Difference, difference
from bridge.policy.files import content_hash, read_files
from bridge.policy.findings import Finding
from bridge.policy.lint import lint
from bridge.policy.problems import InvalidBundle, refusal
from bridge.policy.trial import CaseResult, run_cases
from bridge.proposals import Proposal

ADMIN = "/v1/admin"

Files = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Review:
    """What a bundle is, next to the one in force."""

    content_hash: str
    against: str
    difference: Difference
    cases: tuple[CaseResult, ...]
    findings: tuple[Finding, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"changes over {self.against}, which is in force:"
        yield from (f"  {safe(line)}" for line in self.difference.lines())
        failed = [one for one in self.cases if not one.passed]
        yield f"cases: {len(self.cases) - len(failed)} of {len(self.cases)} as written"
        yield from (f"  FAIL {safe(one.name)}: {safe('; '.join(one.differences))}" for one in failed)
        for finding in self.findings:
            yield f"{finding.severity}: {safe(finding.problem)} [{finding.check}]"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "content_hash": self.content_hash,
            "against": self.against,
            "difference": self.difference.to_json() | {"lines": self.difference.lines()},
            "cases": [{"name": one.name, "passed": one.passed, "differences": one.differences} for one in self.cases],
            "findings": [
                {"severity": one.severity.value, "check": one.check, "problem": str(one.problem)}
                for one in self.findings
            ],
        }


def directory_files(directory: Path) -> Files:
    """Return the files of a policy directory as they are sent; raises RequestRefused ``policy.invalid`` and others."""
    try:
        return accepted(read_files(directory))
    except InvalidBundle as error:
        raise refusal(error.problems) from error


def write_files(directory: Path, files: Files) -> None:
    """Write a bundle into a directory that is new or empty; raises RequestRefused ``policy.directory_in_use``."""
    if directory.exists() and any(directory.iterdir()):
        raise RequestRefused(
            "policy.directory_in_use", f"There is something in {directory}.", "Name a directory that is new or empty."
        )
    for name, text in accepted(files).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def read_proposal(bridge: Remote, proposal_id: str) -> tuple[Proposal, Files]:
    """Return a proposal and its files, which are those of its hash; raises Defect ``policy.content``."""
    answer = bridge.get(f"{ADMIN}/proposals/{proposal_id}")
    proposal = bridge.read(Proposal, answer.get("proposal"))
    return proposal, _checked(bridge.read(dict[str, str], answer.get("files")), proposal.content_hash)


def read_bundle(bridge: Remote, named: str) -> Files:
    """Return the files of a bundle by its hash; raises Defect ``policy.content``."""
    answer = bridge.get(f"{ADMIN}/bundles/{named}")
    return _checked(bridge.read(dict[str, str], answer.get("files")), named)


def read_active(bridge: Remote) -> tuple[Standing, Files]:
    """Return which bundle is in force, and its files; raises Defect ``policy.content``."""
    answer = bridge.get(f"{ADMIN}/bundles/active")
    standing = bridge.read(Standing, answer.get("active"))
    return standing, _checked(bridge.read(dict[str, str], answer.get("files")), standing.content_hash)


def reviewed(bridge: Remote, files: Files) -> Review:
    """Return what files mean next to the bundle in force; raises RequestRefused ``policy.invalid``."""
    new = checked_bundle(accepted(files))
    standing, old_files = read_active(bridge)
    now = datetime.now(UTC)
    return Review(
        content_hash=new.content_hash,
        against=standing.content_hash,
        difference=difference(_readable(old_files), new, new.calendar.day(now)),
        cases=tuple(run_cases(new)),
        findings=tuple(lint(new, now)),
    )


def require_shown(shown: str, given: str | None, *, yes: bool, question: str) -> None:
    """Pass once somebody has seen what is behind the hash ``shown``, and said yes to it.

    Raises Conflict ``policy.other_content`` where ``given`` is another, RequestRefused ``policy.unconfirmed``.
    """
    if given is not None and given != shown:
        raise Conflict(
            "policy.other_content",
            "The content is not the one that you named.",
            "Read it again with 'ci-bridge policy show', then name its hash.",
        )
    if yes and (given is not None or at_terminal()):
        return
    if not at_terminal() or not typer.confirm(question, err=True):
        raise RequestRefused(
            "policy.unconfirmed",
            "Nothing was done: nobody has said yes to what is shown.",
            "Say yes at a terminal; without one, name what you have read: --yes --hash HASH.",
        )


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _readable(files: Files) -> Bundle:
    try:
        return checked_bundle(files)
    except BridgeError as error:
        raise Defect(
            "policy.content",
            "The bundle in force can not be read here.",
            "Use the ci-bridge of the bridge's own release.",
        ) from error


def _checked(files: Files, named: str) -> Files:
    if content_hash(files) != named:
        raise Defect(
            "policy.content",
            "The files that the bridge sent are not those of the bundle's hash.",
            "Approve nothing, and tell the bridge's operators.",
        )
    return files
