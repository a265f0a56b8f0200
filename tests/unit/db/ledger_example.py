"""A grant, an opening and records, for tests of the ledger."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.audit.ledger import Opening
from bridge.audit.record import Actor, Phase, Record, RecordType
from bridge.model import (
    Cluster,
    EvidenceLevel,
    Grant,
    Identity,
    Limits,
    PosixAccount,
    RunId,
    SlurmPlan,
    Stage,
    StageKind,
    StageState,
)

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)


def identity(job_id: int = 301, jti: str | None = None, **changes: Any) -> Identity:
    """Alice in a job of her own."""
    members: dict[str, Any] = {
        "evidence": EvidenceLevel.SIGNED,
        "issuer": "https://gitlab.realm.test",
        "user_id": 101,
        "user_login": "alice",
        "project_id": 7,
        "project_path": "chem/water",
        "job_project_id": 7,
        "namespace_id": 5,
        "pipeline_id": 31,
        "pipeline_source": "push",
        "job_id": job_id,
        "job_name": "build: [a, 1]",
        "ref": "main",
        "ref_type": "branch",
        "ref_protected": True,
        "sha": "0" * 40,
        "runner_id": 1,
        "runner_environment": "self-hosted",
        "environment": None,
        "jti": jti or f"jti-{job_id:05}",
        "token_expires_at": NOW + timedelta(hours=1),
        "job_timeout_seconds": 3600,
    }
    return Identity(**(members | changes))


def grant(who: Identity | None = None, account: str = "alice") -> Grant:
    """What policy gave her."""
    limits = Limits(("standard",), ("ci", "debug"), (), (), 2, 8, 4, 0, 8192, 120, 30, 120, False)
    targets = ("lustre_mds/mds1.realm.test",)
    cache = "FILE:/tmp/krb5cc_%{uid}"
    return Grant(
        identity=who or identity(),
        account=PosixAccount(account, 20001, 21001, ("chem",), f"/home/{account}", "/bin/bash"),
        cluster=Cluster(
            "pocket", "REALM.TEST", "login.realm.test", 22, targets, targets, "/builds", "/c", cache, cache, ("n.r.t",)
        ),
        plan=SlurmPlan("ci", 1, 30, memory_mib=512),
        limits=limits,
        policy_ids=("people",),
        bundle_hash="0" * 64,
        reason="because",
    )


def opening(who: Identity | None = None, **changes: Any) -> Opening:
    """An admission that is about to be written down."""
    members: dict[str, Any] = {
        "grant": grant(who),
        "seal": lambda run_id, attempt, grant_json: f"{run_id}/{attempt}/{len(grant_json)}".encode(),
        "session_hash": b"s" * 32,
        "not_after": NOW + timedelta(hours=1),
        "job_token_hash": b"t" * 32,
    }
    return Opening(**(members | changes))


def intent(who: Identity | None = None, **changes: Any) -> Record:
    """The record that goes with it."""
    return Record(RecordType.ADMISSION, Phase.INTENT, "ref-1", actor=Actor.of(who or identity()), **changes)


def stage(run_id: RunId, invocation: str = "a" * 32, **changes: Any) -> Stage:
    """A Slurm stage that is about to be submitted."""
    members: dict[str, Any] = {
        "name": "build_script",
        "kind": StageKind.SLURM,
        "state": StageState.INTENDED,
        "slurm_job_id": None,
        "slurm_name": f"ci-{run_id}-build_script",
        "exit_code": None,
        "node": None,
    }
    return Stage(run_id=run_id, invocation=invocation, **(members | changes))
