"""Decides the cases of a bundle with the same code as a real job, without any I/O, and compares."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from bridge.errors import PolicyRefused
from bridge.model import EvidenceLevel, ExternalIdentity, Identity, PosixAccount, SlurmRequest
from bridge.policy.bundle import Bundle
from bridge.policy.cases import ALLOWED, Case, Situation
from bridge.policy.directory import account_unknown
from bridge.policy.engine import Engine
from bridge.policy.linked import resolve
from bridge.policy.question import Question
from bridge.policy.worktime import tick
from bridge.register import FIRST_REVISION, Register

CASE_UID: Final = 60000
"""Of an account that no row pins, where the case does not say."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a case came out."""

    name: str
    differences: tuple[str, ...]
    """``what: got X, expected Y``; empty when all is as written."""

    @property
    def passed(self) -> bool:
        """Whether the bundle decided as written down."""
        return not self.differences


def run_cases(bundle: Bundle) -> list[CaseResult]:
    """Decide every case of ``bundle`` by it."""
    return [run_case(bundle, case) for case in bundle.cases]


def run_case(bundle: Bundle, case: Case) -> CaseResult:
    """Decide one case and compare."""
    tick()
    got = _decide(bundle, case)
    expected = {key: value for key, value in case.expect.model_dump().items() if value is not None}
    differences = tuple(
        f"{key}: got {got.get(key)!r}, expected {value!r}" for key, value in expected.items() if got.get(key) != value
    )
    return CaseResult(case.name, differences)


def question_of_case(bundle: Bundle, case: Situation) -> Question:
    """What a job as the case describes it would ask of the policy.

    Raises PolicyRefused where no account is found for it: ``account.*``.
    """
    identity = _identity(case)
    row = bundle.accounts.teams.of(identity) or bundle.accounts.rows.get((case.issuer, case.user_id))
    directory = _CaseDirectory(case, CASE_UID if row is None else row.uid)
    today = bundle.calendar.day(case.at)
    account = resolve(bundle.accounts, directory, Register(FIRST_REVISION), identity, today).account
    return Question(identity, account, case.cluster, SlurmRequest(**case.asked.model_dump()), case.at)


class _CaseDirectory:
    """A directory with the one account that the case describes."""

    def __init__(self, case: Situation, pinned_uid: int) -> None:
        self._posix = case.posix
        self._pinned_uid = pinned_uid

    def lookup(self, name: str) -> PosixAccount:
        if self._posix.missing:
            raise account_unknown(name)
        uid = self._pinned_uid if self._posix.uid is None else self._posix.uid
        gid = uid if self._posix.gid is None else self._posix.gid
        return PosixAccount(name, uid, gid, tuple(self._posix.groups), f"/home/{name}", self._posix.shell)


def _decide(bundle: Bundle, case: Case) -> dict[str, Any]:
    try:
        grant = Engine(bundle).decide(question_of_case(bundle, case))
    except PolicyRefused as error:
        ids = error.context.get("policy_ids", ())
        return {"decision": error.code, "policies": list(ids) if isinstance(ids, tuple) else []}
    plan = asdict(grant.plan)
    return {
        "decision": ALLOWED,
        "account": grant.account.name,
        "policies": list(grant.policy_ids),
        "limits": list(grant.limits.names),
        **{key: plan[key] for key in ("partition", "nodes", "gpus", "time_minutes")},
    }


def _identity(case: Situation) -> Identity:
    job = case.job
    signed = job.evidence is EvidenceLevel.SIGNED
    logins, groups = job.user_identities, job.groups
    return Identity(
        evidence=job.evidence,
        issuer=case.issuer,
        user_id=case.user_id,
        user_login=case.user_login,
        project_id=job.project_id,
        project_path=job.project_path,
        job_project_id=job.project_id if job.job_project_id is None else job.job_project_id,
        namespace_id=job.namespace_id if signed else None,
        pipeline_id=1,
        pipeline_source=job.pipeline_source,
        job_id=1,
        job_name=job.job_name,
        ref=job.ref,
        ref_type=job.ref_type,
        ref_protected=job.ref_protected and signed,
        sha="0" * 40,
        runner_id=job.runner_id,
        runner_environment=job.runner_environment if signed else None,
        environment=job.environment,
        jti="case",
        token_expires_at=datetime(2100, 1, 1, tzinfo=UTC),
        job_timeout_seconds=3600,
        ref_path=job.ref_path,
        user_access_level=job.user_access_level,
        ci_config_ref_uri=job.ci_config_ref_uri,
        ci_config_sha=job.ci_config_sha,
        environment_protected=job.environment_protected,
        deployment_tier=job.deployment_tier,
        user_identities=None if logins is None else tuple(ExternalIdentity(**one.model_dump()) for one in logins),
        groups=None if groups is None else tuple(groups),
    )
