"""The pure decision: may this identity run as this account on this cluster, and with how much of it?

Cedar says yes or no (default deny, forbid wins) and by which policies; the envelopes that the deciding permits name say
how much. No I/O and no clock in here: the same question has the same answer.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, NoReturn

import cedarpy

from bridge.errors import Defect, PolicyRefused
from bridge.model import Cluster, EvidenceLevel, Grant, Identity, Limits, PosixAccount, SlurmRequest
from bridge.policy.bundle import Bundle
from bridge.policy.limits import intersection, settle

_RUN_AS = {"type": "Action", "id": "run_as"}
_ADD_THE_BLOCK = (
    "This job was shown by its job token only: add an id_tokens: block with the bridge's audience to it in "
    ".gitlab-ci.yml, or ask the policy's authors."
)


class Engine:
    """Decides by one bundle; safe to use from many threads."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    def decide(self, identity: Identity, account: PosixAccount, cluster: Cluster, request: SlurmRequest) -> Grant:
        """The grant for ``identity`` as ``account``, which ``accounts.resolve`` has found fit for it.

        Raises PolicyRefused ``policy.no_permit``, ``policy.forbidden``, or one of ``limits.*``.
        """
        permits = self._permits(identity, account, cluster, request)
        envelopes = self._envelopes(permits)
        plan = settle(request, envelopes)
        return Grant(
            identity=identity,
            account=account,
            cluster=cluster,
            plan=plan,
            limits=intersection(envelopes),
            policy_ids=permits,
            bundle_hash=self.bundle.content_hash,
            reason=_reason(identity, account, permits),
        )

    def _permits(
        self, identity: Identity, account: PosixAccount, cluster: Cluster, request: SlurmRequest
    ) -> tuple[str, ...]:
        """Ids, sorted, of the permits that decide; raises PolicyRefused."""
        user = {"type": "User", "id": user_entity_id(identity.issuer, identity.user_id)}
        result = cedarpy.is_authorized(
            {
                "principal": user,
                "action": _RUN_AS,
                "resource": {"type": "Account", "id": account.name},
                "context": json.dumps(_context(identity, cluster, request)),
            },
            self.bundle.policies.policy_set,
            json.dumps(_entities(user, identity, account)),
            schema=self.bundle.policies.schema,
        )
        diagnostics = result.diagnostics
        if diagnostics.errors or result.decision is cedarpy.Decision.NoDecision:
            # Cedar passes over a policy that fails; a forbid that fails must not let anybody in.
            raise Defect(
                "policy.evaluation_failed",
                "The policies could not be evaluated for this job.",
                "Give the reference to the administrators of the bridge.",
                errors=tuple(diagnostics.errors),
            )
        ids = tuple(sorted(diagnostics.id_annotations_by_reason.values()))
        if not result.allowed:
            self._refuse(ids, identity, account)
        return ids

    def _envelopes(self, permits: tuple[str, ...]) -> list[Limits]:
        infos = self.bundle.policies.infos
        names = dict.fromkeys(name for policy_id in permits for name in infos[policy_id].limits)
        return [self.bundle.limits[name] for name in names]

    def _refuse(self, ids: tuple[str, ...], identity: Identity, account: PosixAccount) -> NoReturn:
        who = {"user_id": identity.user_id, "account": account.name, "bundle_hash": self.bundle.content_hash}
        better = identity.evidence is EvidenceLevel.INTROSPECTED
        if not ids:
            raise PolicyRefused(
                "policy.no_permit",
                f"No policy lets this job run as {account.name}.",
                _ADD_THE_BLOCK
                if better
                else "Ask the policy's authors which projects, branches and pipelines may run on this cluster.",
                **who,
            )
        reason = self.bundle.policies.infos[ids[0]].reason
        raise PolicyRefused(
            "policy.forbidden",
            f"The policy '{ids[0]}' forbids this job: {reason}",
            _ADD_THE_BLOCK if better else "Change what the policy names, or ask the policy's authors.",
            policy_ids=ids,
            **who,
        )


def user_entity_id(issuer: str, user_id: int) -> str:
    """The Cedar entity id of a GitLab user: ``https://gitlab.example/101``."""
    return f"{issuer}/{user_id}"


def _context(identity: Identity, cluster: Cluster, request: SlurmRequest) -> dict[str, Any]:
    """What policies can ask about; absent where nobody said."""
    identities, groups = identity.user_identities, identity.groups
    optional = {
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
        "partition": request.partition,
        "qos": request.qos,
        "slurm_account": request.slurm_account,
        "nodes": request.nodes,
        "gpus": request.gpus,
        "time_minutes": request.time_minutes,
    }
    return {
        "cluster": cluster.name,
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
        **{name: value for name, value in optional.items() if value is not None},
    }


def _entities(user: dict[str, str], identity: Identity, account: PosixAccount) -> list[dict[str, Any]]:
    return [
        {
            "uid": user,
            "attrs": {"id": identity.user_id, "issuer": identity.issuer, "login": identity.user_login},
            "parents": [],
        },
        {
            "uid": {"type": "Account", "id": account.name},
            "attrs": {"uid": account.uid, "gid": account.gid},
            "parents": [{"type": "PosixGroup", "id": group} for group in account.groups],
        },
    ]


def _reason(identity: Identity, account: PosixAccount, permits: tuple[str, ...]) -> str:
    return (
        f"GitLab user {identity.user_login} ({identity.user_id}) is linked to {account.name} (uid {account.uid}); "
        f"shown by {identity.evidence.value}; allowed by {', '.join(permits)}"
    )
