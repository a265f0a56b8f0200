"""How the explanation of a decision prints for people."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.policy.explain import Explanation, Finding, Rule

_MARKS = {True: "yes", False: "no ", None: "?  "}


def lines(explanation: Explanation) -> Iterator[str]:
    """The explanation, with the text of policies, line by line."""
    yield f"{explanation.title} [{explanation.decision}]"
    if explanation.remedy:
        yield f"What to do: {explanation.remedy}"
    for rule in explanation.forbids:
        yield from _rule(rule, f"forbids: {rule.reason}")
    for rule in explanation.permits:
        open_conditions = len(rule.lacking)
        said = f"lacks {open_conditions} of {len(rule.findings)}" if open_conditions else "permits it"
        yield from _rule(rule, f"{said}, limits {', '.join(rule.limits)}")
    for excess in explanation.excesses:
        yield f"limit {excess.limit}: {excess.sentence}"
    yield "The job's log may say:"
    for line in explanation.safe():
        yield f"    {line}"


def _rule(rule: Rule, said: str) -> Iterator[str]:
    yield f"{rule.policy_id} ({rule.file}:{rule.line}) {said}"
    for one in rule.findings:
        yield f"    {_MARKS[one.holds]} {one.text}{_values(one)}"


def _values(finding: Finding) -> str:
    shown = (f"{name} is {'not there' if value is None else ascii(value)}" for name, value in finding.values.items())
    told = ", ".join(shown)
    return f"    ({told})" if told else ""
