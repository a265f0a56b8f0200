"""One decision, from a person in a job to a grant: their account as it is now, then policy and limits.

Made in the same way for a job that asks to be admitted, and for the question what a bundle would do to live runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bridge.active import InForce
from bridge.decisions import KeptDecision
from bridge.errors import BridgeError, PolicyRefused
from bridge.model import Grant, Identity, SlurmRequest
from bridge.policy.directory import Directory
from bridge.policy.explain import Explainer
from bridge.policy.linked import Mapped, resolve
from bridge.policy.question import Question
from bridge.register import Register

MOST_LINES: Final = 4
"""Of an explanation in the job's log."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to policy, once the person's account is found."""

    policy: InForce
    question: Question
    mapped: Mapped


@dataclass(frozen=True, slots=True)
class Decided:
    """What policy says of a person in a job."""

    policy: InForce
    """By which it was decided."""
    question: Question
    grant: Grant
    provider: str | None
    """The identity provider whose word is to be pinned with this first use."""
    ask_first: bool
    """Whether the account's owner must have allowed the project."""


def asked(
    policy: InForce,
    directory: Directory,
    register: Register,
    identity: Identity,
    cluster: str | None,
    request: SlurmRequest,
    at: datetime,
) -> Asked:
    """Find the person's account by the bundle of ``policy``, as of the moment ``at``, and put the question.

    Raises PolicyRefused ``account.*``, Outage ``directory.unreachable``.
    """
    bundle = policy.engine.bundle
    mapped = resolve(bundle.accounts, directory, register, identity, bundle.calendar.day(at))
    return Asked(policy, Question(identity, mapped.account, cluster, request, at), mapped)


def answered(asked: Asked) -> Decided:
    """Decide; raises PolicyRefused ``policy.*`` and ``limits.*``, Defect ``policy.evaluation_failed``."""
    policy, mapped = asked.policy, asked.mapped
    grant = policy.engine.decide(asked.question)
    grant = replace(grant, link_id=mapped.link_id, reason=grant.reason + _under(policy.emergency_until))
    return Decided(policy, asked.question, grant, mapped.provider, policy.engine.bundle.accounts.ask_first)


def kept(question: Question, bundle_hash: str, code: str, reference: str) -> KeptDecision:
    """The decision as it is kept for explanation and replay."""
    who = question.identity
    return KeptDecision(
        reference=reference,
        at=question.at,
        issuer=who.issuer,
        user_id=who.user_id,
        project_id=who.project_id,
        job_id=who.job_id,
        account=question.account.name,
        code=code,
        bundle_hash=bundle_hash,
        question=question.to_json(),
    )


def explained(explainer: Explainer, asked: Asked, error: BridgeError) -> BridgeError:
    """The refusal with what the job's log may say of its reasons before the remedy; other errors as they are."""
    if not isinstance(error, PolicyRefused):
        return error
    lines = [line for line in explainer.explain(asked.question).safe() if line != error.title]
    return error.because(*lines[:MOST_LINES])


def _under(emergency_until: datetime | None) -> str:
    return "" if emergency_until is None else f"; under the emergency policy until {emergency_until:%H:%M} UTC"
