"""Makes the question of a made-up job for a subject in a situation, and asks the engine what it gets."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, Final

from bridge.errors import BridgeError
from bridge.model import EvidenceLevel, ExternalIdentity, Identity, Limits, PosixAccount, SlurmRequest
from bridge.policy.bundle import Bundle
from bridge.policy.calendar import Calendar
from bridge.policy.cases import ALLOWED
from bridge.policy.engine import Engine
from bridge.policy.facts import request_of
from bridge.policy.question import Question
from bridge.policy.situations import ABSENT, FORK, GROUP, UNNAMED, UNPROVEN, USUAL, Choice
from bridge.policy.timetable import moment

_IDENTITY: Final = frozenset(field.name for field in fields(Identity))
_REQUEST: Final = frozenset(field.name for field in fields(SlurmRequest))
AFTER_POLICIES: Final = _REQUEST | {"cluster", "evidence"}
"""Variables that count after the policies too: the cluster, the evidence, and what is asked of Slurm."""
_FIXED: Final = MappingProxyType(
    {
        "pipeline_id": 1,
        "job_id": 1,
        "sha": "0" * 40,
        "environment": None,
        "jti": "made-up",
        "token_expires_at": datetime(2100, 1, 1, tzinfo=UTC),
        "job_timeout_seconds": 3600,
    }
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A GitLab user with the account of their row."""

    issuer: str
    user_id: int
    login: str
    account: PosixAccount


@dataclass(frozen=True, slots=True)
class Stage:
    """Where and when made-up jobs take place."""

    today: date
    calendar: Calendar
    default_cluster: str

    @classmethod
    def of(cls, bundle: Bundle, today: date) -> Stage:
        """The default cluster of ``bundle``, in its time zone; ``today`` is the day of the usual job."""
        return cls(today, bundle.calendar, bundle.clusters.default)

    def question(self, subject: Subject, choice: Choice) -> Question:
        """The question of ``subject``'s usual job with what ``choice`` says, as far as its evidence can show it."""
        said = {name: json.loads(text) for name, text in choice.items() if text != ABSENT}
        groups = tuple(name.removeprefix(GROUP) for name, value in said.items() if name.startswith(GROUP) and value)
        account = replace(subject.account, groups=subject.account.groups + groups)
        asked = {name: value for name, value in said.items() if name in _REQUEST}
        return Question(
            identity=_identity(subject, said),
            account=account,
            cluster=said.get("cluster", self.default_cluster),
            request=SlurmRequest(**asked),
            at=moment(choice, self.today, self.calendar),
        )

    def request(self, question: Question) -> dict[str, Any]:
        """A question of this stage for ``cedarpy.is_authorized``."""
        return request_of(question, question.cluster or self.default_cluster, self.calendar)


def settle(engine: Engine, question: Question) -> tuple[str, Limits | None]:
    """``allowed`` with the limits, or the code of the refusal."""
    try:
        return ALLOWED, engine.decide(question).limits
    except BridgeError as error:
        return error.code, None


def _identity(subject: Subject, said: dict[str, Any]) -> Identity:
    members: dict[str, Any] = dict(USUAL) | {name: value for name, value in said.items() if name in _IDENTITY}
    if said.get(FORK):
        members["project_id"] = UNNAMED + 1
    else:
        members["project_id"] = members["job_project_id"]
    if "user_identities" in said:
        members["user_identities"] = tuple(ExternalIdentity(**one) for one in said["user_identities"])
    if "groups" in said:
        members["groups"] = tuple(said["groups"])
    members["evidence"] = EvidenceLevel(members["evidence"])
    if members["evidence"] is EvidenceLevel.INTROSPECTED:
        members = {name: None if name in UNPROVEN else value for name, value in members.items()}
        members["ref_protected"] = False
    return Identity(
        issuer=subject.issuer, user_id=subject.user_id, user_login=subject.login, **(dict(_FIXED) | members)
    )
