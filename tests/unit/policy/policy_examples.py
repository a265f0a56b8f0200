"""A person, an account and the shipped bundle, for tests of decisions."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from bridge.model import EvidenceLevel, Identity, PosixAccount, SlurmRequest
from bridge.policy import linked
from bridge.policy.accounts import AccountRules
from bridge.policy.directory import Directory
from bridge.policy.question import Question
from bridge.register import FIRST_REVISION, Register

POLICIES = Path(__file__).parents[3] / "policies"
ISSUER = "https://gitlab.realm.test"
ALICE = PosixAccount("alice", 20001, 21001, ("chem",), "/home/alice", "/bin/bash")


def identity(**changes: Any) -> Identity:
    """Alice's push to a protected branch, with changes."""
    members: dict[str, Any] = {
        "evidence": EvidenceLevel.SIGNED,
        "issuer": ISSUER,
        "user_id": 101,
        "user_login": "alice",
        "project_id": 7,
        "project_path": "chem/water",
        "job_project_id": 7,
        "namespace_id": 5,
        "pipeline_id": 31,
        "pipeline_source": "push",
        "job_id": 301,
        "job_name": "build",
        "ref": "main",
        "ref_type": "branch",
        "ref_protected": True,
        "sha": "0" * 40,
        "runner_id": 1,
        "runner_environment": "self-hosted",
        "environment": None,
        "jti": "jti-00001",
        "token_expires_at": datetime(2026, 11, 20, 13, tzinfo=UTC),
        "job_timeout_seconds": 3600,
    }
    return Identity(**(members | changes))


NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
"""A Wednesday."""


def question(
    request: SlurmRequest | None = None, account: PosixAccount = ALICE, at: datetime = NOON, **changes: Any
) -> Question:
    """May alice's job, with changes, run as alice?"""
    return Question(identity(**changes), account, None, request or SlurmRequest(), at)


def texts(**changes: str | None) -> dict[str, str]:
    """The files of the shipped bundle; ``limits_toml="..."`` replaces one, None removes it."""
    found = {
        path.relative_to(POLICIES).as_posix(): path.read_text()
        for path in POLICIES.rglob("*")
        if path.suffix in {".toml", ".cedar", ".cedarschema"}
    }
    for name, text in changes.items():
        file = name.replace("__", "/").replace("_", ".")
        if text is None:
            del found[file]
        else:
            found[file] = text
    return found


def resolve(rules: AccountRules, directory: Directory, who: Identity, today: date) -> PosixAccount:
    """The account of a person whom no link of the register concerns."""
    return linked.resolve(rules, directory, Register(FIRST_REVISION), who, today).account
