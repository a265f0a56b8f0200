"""The pure decision: may this identity run as this account on this cluster, and with how much of it?

Cedar says yes or no (default deny, forbid wins) and by which policies; the envelopes that the deciding permits name say
how much. No I/O and no clock in here: the moment is part of the question, and the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import cedarpy

from bridge.errors import Defect, PolicyRefused
from bridge.model import Cluster, EvidenceLevel, Grant, Limits, Mount
from bridge.policy.bundle import Bundle
from bridge.policy.facts import entities_of, request_of
from bridge.policy.facts import user_entity_id as user_entity_id
from bridge.policy.limits import intersection, settle
from bridge.policy.question import Question

_ADD_THE_BLOCK = (
    "This job was shown by its job token only: add an id_tokens: block with the bridge's audience to it in "
    ".gitlab-ci.yml, or ask the policy's authors."
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Cedar's answer, before limits."""

    allowed: bool
    policy_ids: tuple[str, ...]
    """Sorted: the permits that allow, the forbids that refuse, or nothing where no permit applies."""


class Engine:
    """Decides by one bundle; safe to use from many threads."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    def decide(self, question: Question) -> Grant:
        """The grant for the question's identity as its account, which ``accounts.resolve`` has found fit for it.

        Raises PolicyRefused ``cluster.unknown``, ``policy.no_permit``, ``policy.forbidden``, or one of ``limits.*``;
        Defect ``policy.evaluation_failed``.
        """
        cluster = self.bundle.clusters.choose(question.cluster)
        verdict = self.verdict(question)
        if not verdict.allowed:
            self._refuse(verdict.policy_ids, question)
        envelopes = self.envelopes(verdict.policy_ids)
        settled = settle(question.request, envelopes)
        limits = intersection(envelopes)
        _require_evidence(limits, question)
        return Grant(
            identity=question.identity,
            account=question.account,
            cluster=_narrowed(cluster, limits),
            plan=settled.plan,
            limits=limits,
            policy_ids=verdict.policy_ids,
            bundle_hash=self.bundle.content_hash,
            reason=_reason(question, verdict.policy_ids),
            notes=settled.notes,
        )

    def verdict(self, question: Question) -> Verdict:
        """Whether the policies permit it; raises Defect where one of them can not be evaluated."""
        policies = self.bundle.policies
        cluster = self.bundle.clusters.choose(question.cluster)
        result = cedarpy.is_authorized(
            request_of(question, cluster.name, self.bundle.calendar),
            policies.policy_set,
            entities_of(question),
            schema=policies.schema,
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
        return Verdict(result.allowed, tuple(sorted(diagnostics.id_annotations_by_reason.values())))

    def envelopes(self, permits: Sequence[str]) -> list[Limits]:
        """The envelopes that the permits name, each once."""
        infos = self.bundle.policies.infos
        names = dict.fromkeys(name for policy_id in permits for name in infos[policy_id].limits)
        return [self.bundle.limits[name] for name in names]

    def _refuse(self, ids: tuple[str, ...], question: Question) -> NoReturn:
        identity, account = question.identity, question.account
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


def _require_evidence(limits: Limits, question: Question) -> None:
    """Raises PolicyRefused ``limits.evidence`` where the job shows less than its envelopes need."""
    if limits.evidence is EvidenceLevel.SIGNED and question.identity.evidence is not EvidenceLevel.SIGNED:
        raise PolicyRefused(
            "limits.evidence",
            f"The limit '{limits.names[0]}' is for jobs with an id_token, and this job has none.",
            _ADD_THE_BLOCK,
            limits=limits.names,
            user_id=question.identity.user_id,
            account=question.account.name,
        )


def _narrowed(cluster: Cluster, limits: Limits) -> Cluster:
    """The cluster with the targets and mounts that the run may have and no others.

    Raises PolicyRefused ``limits.flavor`` where one of these mounts is weaker than the limits ask for, and
    ``limits.empty`` where compute nodes are left without any ticket.
    """
    mounts = tuple(one for one in cluster.mounts if limits.mounts is None or one.name in limits.mounts)
    for mount in mounts:
        _require_flavor(mount, limits)
    if limits.targets is None:
        return replace(cluster, mounts=mounts)
    node_targets = tuple(one for one in cluster.node_targets if one in limits.targets)
    if cluster.node_targets and not node_targets:
        raise PolicyRefused(
            "limits.empty",
            f"The limits {', '.join(limits.names)} apply together, and leave no service of {cluster.name} to reach.",
            "Ask the policy's authors to make one of the permits narrower.",
            limits=limits.names,
        )
    login_targets = tuple(one for one in cluster.login_targets if one in limits.targets)
    return replace(cluster, mounts=mounts, login_targets=login_targets, node_targets=node_targets)


def _require_flavor(mount: Mount, limits: Limits) -> None:
    for has, least in ((mount.mdt_flavor, limits.mdt_flavor), (mount.ost_flavor, limits.ost_flavor)):
        if has.strength < least.strength:
            raise PolicyRefused(
                "limits.flavor",
                f"The limit '{limits.names[0]}' needs {least} on {mount.mountpoint}, which has {has} on this cluster.",
                "Ask the cluster's administrators to protect the file system as the policy wants it.",
                mount=mount.name,
                limits=limits.names,
            )


def _reason(question: Question, permits: tuple[str, ...]) -> str:
    identity, account = question.identity, question.account
    return (
        f"GitLab user {identity.user_login} ({identity.user_id}) is linked to {account.name} (uid {account.uid}); "
        f"shown by {identity.evidence.value}; allowed by {', '.join(permits)}"
    )
