"""Says why a question is answered as it is: which forbids hit, what the nearest permits lack, which number is too big.

The answer itself is the engine's; nothing here decides. Conditions are evaluated by Cedar, one by one. What is said in
full is for those who may read the policies; ``Explanation.safe`` is for the job's log, which the project can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bridge.errors import BridgeError, Defect, PolicyRefused
from bridge.policy.bundle import Bundle
from bridge.policy.cases import ALLOWED, Situation
from bridge.policy.conditions import Conditions, Parts
from bridge.policy.engine import Engine
from bridge.policy.facts import context_of, principal_of, resource_of, user_entity_id
from bridge.policy.limits import Excess, excesses
from bridge.policy.question import Question
from bridge.policy.reading import WHOLE, Path
from bridge.policy.safe import safe_lines
from bridge.policy.trial import question_of_case

NEAREST: Final = 3
"""How many permits are shown that did not apply."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition of a policy, and how it came out."""

    text: str
    """In Cedar."""
    holds: bool | None
    """None: it reads what is not there, behind a condition that asks whether it is."""
    values: Mapping[str, Any]
    """What it looked at, e.g. ``context.ref_protected``; None is not there."""
    reads: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy and its conditions for this question."""

    policy_id: str
    effect: str
    file: str
    line: int
    limits: tuple[str, ...]
    reason: str | None
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> tuple[Finding, ...]:
        """The conditions that keep it from applying."""
        return tuple(one for one in self.findings if not one.holds)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a question is answered as it is."""

    decision: str
    """``allowed``, or the code of the refusal."""
    title: str
    remedy: str
    account: str | None
    """None where no account was found for the person."""
    bundle_hash: str
    forbids: tuple[Rule, ...] = ()
    """Those that refuse."""
    permits: tuple[Rule, ...] = ()
    """Those that allow; where there are none, the nearest ones, nearest first."""
    excesses: tuple[Excess, ...] = ()
    """All that is asked for beyond the limits, also what is only cut down."""

    @property
    def allowed(self) -> bool:
        """Whether the job may run."""
        return self.decision == ALLOWED

    def safe(self) -> tuple[str, ...]:
        """Lines for the job's log: only the job's own values, and what forbids and limits say to everybody."""
        nearest = self.permits[0].lacking if self.permits and not self.forbids else ()
        forbids = [(one.policy_id, one.reason or "") for one in self.forbids]
        lacking = [(one.reads, one.values) for one in nearest]
        return tuple(
            dict.fromkeys((self.title, *safe_lines(forbids, lacking, [one.sentence for one in self.excesses])))
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values; members are only ever added."""
        return {
            "decision": self.decision,
            "title": self.title,
            "remedy": self.remedy,
            "account": self.account,
            "bundle_hash": self.bundle_hash,
            "forbids": [_rule_json(one) for one in self.forbids],
            "permits": [_rule_json(one) for one in self.permits],
            "limits": [asdict(one) for one in self.excesses],
            "safe": list(self.safe()),
        }


class Explainer:
    """Explains by one bundle; safe to use from many threads. Making one takes milliseconds, so keep it."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._engine = Engine(bundle)
        self._conditions = Conditions(bundle)

    def explain(self, question: Question) -> Explanation:
        """The explanation of the engine's answer, whatever it is; raises nothing that the engine raises."""
        try:
            grant = self._engine.decide(question)
        except (PolicyRefused, Defect) as error:
            return self._refused(question, error)
        permits = self._rules(question, grant.policy_ids)
        return Explanation(
            ALLOWED,
            f"The job runs as {grant.account.name}, allowed by {', '.join(grant.policy_ids)}.",
            "",
            grant.account.name,
            self._bundle.content_hash,
            permits=permits,
            excesses=self._excesses(question, grant.policy_ids),
        )

    def explain_case(self, case: Situation) -> Explanation:
        """The explanation for a made-up job, also where no account is found for it."""
        try:
            question = question_of_case(self._bundle, case)
        except PolicyRefused as error:
            return self.unanswered(error)
        return self.explain(question)

    def unanswered(self, error: BridgeError) -> Explanation:
        """The explanation of what stands in the way of any question, such as ``account.not_mapped``."""
        return Explanation(error.code, error.title, error.remedy, None, self._bundle.content_hash)

    def _refused(self, question: Question, error: BridgeError) -> Explanation:
        try:
            verdict = self._engine.verdict(question)
        except (PolicyRefused, Defect):
            return self.unanswered(error)
        allowing = verdict.policy_ids if verdict.allowed else ()
        return Explanation(
            error.code,
            error.title,
            error.remedy,
            question.account.name,
            self._bundle.content_hash,
            forbids=() if verdict.allowed else self._rules(question, verdict.policy_ids),
            permits=self._rules(question, allowing) if allowing else self._nearest(question),
            excesses=self._excesses(question, allowing),
        )

    def _rules(self, question: Question, ids: Sequence[str]) -> tuple[Rule, ...]:
        return tuple(one for one in self._all(question) if one.policy_id in ids)

    def _nearest(self, question: Question) -> tuple[Rule, ...]:
        permits = [one for one in self._all(question) if one.effect == "permit"]
        return tuple(sorted(permits, key=_distance)[:NEAREST])

    def _all(self, question: Question) -> list[Rule]:
        holding = self._conditions.holding(question)
        values = self._values(question)
        return [_rule(parts, holding[parts.info.policy_id], values) for parts in self._conditions.policies]

    def _values(self, question: Question) -> Mapping[Path, Any]:
        cluster = self._bundle.clusters.choose(question.cluster).name
        account, identity = question.account, question.identity
        attributes = {
            "principal": principal_of(question),
            "resource": resource_of(question),
            "context": context_of(question, cluster, self._bundle.calendar),
        }
        return {
            Path("principal", WHOLE): user_entity_id(identity.issuer, identity.user_id),
            Path("resource", WHOLE): f"{account.name}, in {', '.join(account.groups) or 'no group'}",
            **{Path(root, name): value for root, named in attributes.items() for name, value in named.items()},
        }

    def _excesses(self, question: Question, permits: Sequence[str]) -> tuple[Excess, ...]:
        if not permits:
            return ()
        try:
            return excesses(question.request, self._engine.envelopes(permits))
        except PolicyRefused:
            return ()


def _distance(rule: Rule) -> tuple[int, int, str]:
    """How far a permit is from applying; of two as near, what the job itself can change comes first."""
    about_people = sum(any(path.root != "context" for path in one.reads) for one in rule.lacking)
    return len(rule.lacking), about_people, rule.policy_id


def _rule(parts: Parts, holding: Sequence[bool | None], values: Mapping[Path, Any]) -> Rule:
    info = parts.info
    findings = tuple(
        Finding(one.text, holds, {_name(path): values.get(path) for path in one.reads}, one.reads)
        for one, holds in zip(parts.conditions, holding, strict=True)
    )
    return Rule(info.policy_id, info.effect, info.file, info.line, info.limits, info.reason, findings)


def _name(path: Path) -> str:
    return path.root if path.attribute == WHOLE else f"{path.root}.{path.attribute}"


def _rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "policy_id": rule.policy_id,
        "effect": rule.effect,
        "file": rule.file,
        "line": rule.line,
        "limits": list(rule.limits),
        "reason": rule.reason,
        "conditions": [{"text": one.text, "holds": one.holds, "values": dict(one.values)} for one in rule.findings],
    }
