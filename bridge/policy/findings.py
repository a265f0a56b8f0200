"""A finding of ``lint``: what is strange, where, and whether it stops the bundle from being used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from bridge.policy.bundle import Bundle
from bridge.policy.problems import Problem
from bridge.policy.reading import Rule


class Severity(StrEnum):
    """Whether a finding stops a bundle from being used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or only strange."""

    severity: Severity
    check: str
    """Which check has found it, e.g. ``dead-rule``."""
    problem: Problem


def at_rule(rule: Rule, check: str, message: str, severity: Severity = Severity.WARNING) -> Finding:
    """A finding at the line where the policy begins."""
    return Finding(severity, check, Problem(rule.info.file, rule.info.line, message))


def in_file(bundle: Bundle, file: str, text: str, check: str, message: str) -> Finding:
    """A finding at the first line of ``file`` that is ``text``."""
    wanted = re.sub(r"\s+", "", text)
    lines = enumerate(bundle.files[file].splitlines(), start=1)
    line = next((number for number, one in lines if re.sub(r"\s+", "", one).startswith(wanted)), None)
    return Finding(Severity.WARNING, check, Problem(file, line, message))
