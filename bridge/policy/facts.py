"""A question as Cedar sees it: the principal, the account and the context of the schema, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from bridge.model import Identity, PosixAccount, SlurmRequest
from bridge.policy.calendar import Calendar
from bridge.policy.question import Question

_RUN_AS: Final = {"type": "Action", "id": "run_as"}


def request_of(question: Question, cluster: str, calendar: Calendar) -> dict[str, Any]:
    """The request for ``cedarpy.is_authorized``; ``cluster`` is the name of the chosen one."""
    return {
        "principal": _user(question.identity),
        "action": _RUN_AS,
        "resource": _account(question.account),
        "context": json.dumps(context_of(question, cluster, calendar)),
    }


def entities_of(question: Question) -> str:
    """The person and the account with its groups, for ``cedarpy.is_authorized``."""
    return json.dumps(
        [
            {"uid": _user(question.identity), "attrs": principal_of(question), "parents": []},
            {
                "uid": _account(question.account),
                "attrs": resource_of(question),
                "parents": [{"type": "PosixGroup", "id": group} for group in question.account.groups],
            },
        ]
    )


def user_entity_id(issuer: str, user_id: int) -> str:
    """The Cedar entity id of a GitLab user: ``https://gitlab.example/101``."""
    return f"{issuer}/{user_id}"


def principal_of(question: Question) -> Mapping[str, Any]:
    """The attributes of the principal."""
    identity = question.identity
    return {"id": identity.user_id, "issuer": identity.issuer, "login": identity.user_login}


def resource_of(question: Question) -> Mapping[str, Any]:
    """The attributes of the account."""
    return {"uid": question.account.uid, "gid": question.account.gid}


def context_of(question: Question, cluster: str, calendar: Calendar) -> dict[str, Any]:
    """What policies can ask about; absent where nobody said."""
    identity = question.identity
    optional = _proven(identity) | _asked(question.request)
    return {
        "cluster": cluster,
        "issuer": identity.issuer,
        "evidence": identity.evidence.value,
        "project_id": identity.project_id,
        "job_project_id": identity.job_project_id,
        "pipeline_source": identity.pipeline_source,
        "job_name": identity.job_name,
        "ref": identity.ref,
        "ref_type": identity.ref_type,
        "ref_protected": identity.ref_protected,
        "runner_id": identity.runner_id,
        **calendar.facts(question.at),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _proven(identity: Identity) -> dict[str, Any]:
    identities, groups = identity.user_identities, identity.groups
    return {
        "project_path": identity.project_path,
        "namespace_id": identity.namespace_id,
        "runner_environment": identity.runner_environment,
        "ref_path": identity.ref_path,
        "ci_config_ref_uri": identity.ci_config_ref_uri,
        "ci_config_sha": identity.ci_config_sha,
        "environment": identity.environment,
        "environment_protected": identity.environment_protected,
        "deployment_tier": identity.deployment_tier,
        "user_access_level": identity.user_access_level,
        "user_identities": None if identities is None else [asdict(one) for one in identities],
        "groups": None if groups is None else list(groups),
    }


def _asked(request: SlurmRequest) -> dict[str, Any]:
    return {
        "partition": request.partition,
        "qos": request.qos,
        "slurm_account": request.slurm_account,
        "nodes": request.nodes,
        "gpus": request.gpus,
        "time_minutes": request.time_minutes,
    }


def _user(identity: Identity) -> dict[str, str]:
    return {"type": "User", "id": user_entity_id(identity.issuer, identity.user_id)}


def _account(account: PosixAccount) -> dict[str, str]:
    return {"type": "Account", "id": account.name}
