"""THE page to read: how a job that a runner presents becomes a run with tickets of the person who started it.

    1 verify       the id_token, then the job it names: token, runner and GitLab must agree; without an id_token what
                   GitLab says of the job token, where that is configured
    2 decide       the person's account as it is now, then policy and limits
    3 record       the token's one use, the run and the INTENT, in one transaction, unless a kill switch or the
                   account's owner stops it, or another policy came into force: then 2 again, once
    4 impersonate  tickets for the login node, by S4U2Self and S4U2Proxy
    5 record       the OUTCOME

It runs inside the broker, the only process that could do step 4 without the others. Nothing is asked of the KDC before
the intent is durable, and every refusal leaves a record of its own.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from bridge.active import ActivePolicy, InForce
from bridge.audit.ledger import Ledger, Opened, Opening, Tx
from bridge.audit.record import Actor, Basis, Phase, Record, RecordType, Target
from bridge.cluster.options import parse_options
from bridge.deciding import Asked, Decided, answered, asked, explained, kept
from bridge.errors import BridgeError, Conflict, Defect, Refused
from bridge.kerberos.impersonation import Impersonator
from bridge.lifecycle import RUN_TRANSITIONS
from bridge.model import Evidence, Grant, Identity, RunId, RunState, SignedClaims, TicketBundle
from bridge.oidc import introspection
from bridge.oidc.claims import unknown_claims
from bridge.oidc.gitlab import JobCheck
from bridge.oidc.identity import identity as identity_of
from bridge.oidc.verifier import Verifier
from bridge.people.pinning import pinned
from bridge.policy.cases import ALLOWED
from bridge.policy.directory import Directory
from bridge.records import basis_of, target_of, tickets_of
from bridge.references import new_reference
from bridge.seal import GrantSeal
from bridge.sealed import SealedRegister
from bridge.standing import require_asked, require_standing

Detail = Mapping[str, str | int | bool | tuple[str, ...]]

SHOWN_CLAIMS = 16
_CLAIM = re.compile(r"[A-Za-z0-9_.:/-]{1,64}", re.ASCII)

SESSION_BYTES = 32
"""T8: the token is exchanged once for an opaque secret of 256 bits."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What an admitted job gets."""

    run_id: RunId
    attempt: int
    session: str = field(repr=False)
    grant: Grant
    grant_json: bytes
    """As it was sealed."""
    bundle: TicketBundle
    """For the SSH connection to the login node."""
    reference: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What step 1 came to."""

    identity: Identity
    noted: Detail
    """What else is to go on record of the evidence."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits jobs; every part is passed in, none is looked up."""

    verifier: Verifier
    jobs: JobCheck
    policy: ActivePolicy
    """The bundle that is in force now."""
    directory: Directory
    ledger: Ledger
    impersonator: Impersonator
    seal: GrantSeal
    register: SealedRegister
    """Links, consents and kill switches."""
    clock: Callable[[], datetime]
    job_token_issuers: Mapping[str, int] = field(default_factory=dict)
    """GitLabs whose job tokens are evidence by themselves, with the longest life of a run in seconds."""

    def admit(self, evidence: Evidence) -> Admitted:
        """Admit a job, or raise what refuses it, with the reference of its record."""
        reference = new_reference()
        who = self._verified(evidence, reference)
        session = secrets.token_urlsafe(SESSION_BYTES)
        grant, opened = self._granted(who, evidence, session, reference)
        bundle = self._impersonate(grant, opened, reference)
        return Admitted(opened.run_id, opened.attempt, session, grant, opened.grant_json, bundle, reference)

    def _granted(self, who: Verified, evidence: Evidence, session: str, reference: str) -> tuple[Grant, Opened]:
        """Steps 2 and 3, a second time where another bundle came into force between them (T48)."""
        for _ in range(2):
            decision = self._decide(who, evidence, reference)
            recorded = self._record_intent(decision, who, evidence, session, reference)
            if recorded is not None:
                return recorded
        error = Conflict(
            "policy.changed_twice",
            "The policy changed twice while this job was looked at.",
            "Run the job again.",
            account=decision.grant.account.name,
        )
        self._record_refusal(error, evidence, who.identity, reference, decision.policy)
        raise error.referenced(reference)

    def _verified(self, evidence: Evidence, reference: str) -> Verified:
        """Step 1; a refusal is on record before the caller hears of it."""
        try:
            return Verified(*self._verify(evidence))
        except BridgeError as error:
            self._record_refusal(error, evidence, None, reference)
            raise error.referenced(reference) from error

    def _decide(self, who: Verified, evidence: Evidence, reference: str) -> Decided:
        """Step 2; a refusal is on record before the caller hears of it."""
        policy: InForce | None = None
        question: Asked | None = None
        try:
            with self.ledger.read() as view:
                policy = self.policy.current(view)
                request, at = parse_options(evidence.scheduler_parameters), self.clock()
                register = self.register.current(view)
            question = asked(policy, self.directory, register, who.identity, evidence.cluster, request, at)
            return answered(question)
        except BridgeError as error:
            told = error if question is None else explained(self.policy.explainer(question.policy), question, error)
            self._record_refusal(told, evidence, who.identity, reference, policy, question)
            raise told.referenced(reference) from error

    def _verify(self, evidence: Evidence) -> tuple[Identity, Detail]:
        """The identity, and what else is to be noted of its evidence."""
        if evidence.id_token is None:
            return introspection.identity(evidence, self.jobs, self.job_token_issuers, self.clock()), {}
        claims = self.verifier.verify(evidence.id_token, self.clock())
        job = self.jobs.alive(claims, evidence.job_token, evidence.facts)
        return identity_of(claims, job), _unknown(claims)

    def _record_intent(
        self, decision: Decided, who: Verified, evidence: Evidence, session: str, reference: str
    ) -> tuple[Grant, Opened] | None:
        """Step 3: the token's one use, the run and the intent, unless something stops it; all of it or nothing.

        None where another bundle is in force than the one that decided; nothing was recorded then.
        """
        grant = decision.grant
        try:
            with self.ledger.begin() as tx:
                if self.policy.content_hash(tx) != grant.bundle_hash:
                    return None
                grant = pinned(self.register, tx, grant, decision.provider, self.clock())
                register = self.register.current(tx)
                require_standing(register, grant)
                require_asked(register, grant, ask_first=decision.ask_first)
                opened = tx.open_run(self._opening(grant, evidence, session))
                self.policy.note_use(tx, decision.policy)
                decided = kept(decision.question, grant.bundle_hash, ALLOWED, reference)
                tx.keep_decision(decided)
                intent = self._record(Phase.INTENT, grant, opened, reference, noted=who.noted)
                tx.append(replace(intent, request_sha256=decided.question_sha256))
                return grant, opened
        except (Refused, Defect) as error:
            self._record_refusal(error, evidence, grant.identity, reference, decision.policy)
            raise error.referenced(reference) from error

    def _opening(self, grant: Grant, evidence: Evidence, session: str) -> Opening:
        not_after = grant.identity.token_expires_at
        return Opening(
            grant=grant,
            seal=self.seal.maker(not_after),
            session_hash=hashlib.sha256(session.encode()).digest(),
            not_after=not_after,
            job_token_hash=hashlib.sha256(evidence.job_token.encode()).digest(),
        )

    def _impersonate(self, grant: Grant, opened: Opened, reference: str) -> TicketBundle:
        account, targets, seconds = grant.account, grant.cluster.ssh_targets, grant.limits.ticket_minutes * 60
        try:
            bundle = self.impersonator.tickets(account.name, account.uid, targets, seconds)
        except BridgeError as error:
            with self.ledger.begin() as tx:
                tx.update_run_state(opened.run_id, RUN_TRANSITIONS.keys(), RunState.ENDED)
                tx.append(self._record(Phase.FAILED, grant, opened, reference, error))
            raise error.referenced(reference) from error
        with self.ledger.begin() as tx:
            tx.append(self._record(Phase.OK, grant, opened, reference, bundle=bundle))
        return bundle

    def _record(
        self,
        phase: Phase,
        grant: Grant,
        opened: Opened,
        reference: str,
        error: BridgeError | None = None,
        bundle: TicketBundle | None = None,
        noted: Detail = MappingProxyType({}),
    ) -> Record:
        return Record(
            type=RecordType.ADMISSION,
            phase=phase,
            reference=reference,
            run_id=opened.run_id,
            actor=Actor.of(grant.identity),
            target=target_of(grant),
            basis=basis_of(grant),
            tickets=tickets_of(bundle) if bundle else None,
            code=error.code if error else None,
            detail={**_detail(error), **noted, "attempt": opened.attempt, "evidence": grant.identity.evidence.value},
        )

    def _record_refusal(
        self,
        error: BridgeError,
        evidence: Evidence,
        identity: Identity | None,
        reference: str,
        policy: InForce | None = None,
        question: Asked | None = None,
    ) -> None:
        decided = None
        if question is not None:
            decided = kept(question.question, question.policy.content_hash, error.code, reference)
        with self.ledger.begin() as tx:
            if decided is not None:
                tx.keep_decision(decided)
            if policy is not None:
                self.policy.note_use(tx, policy)
            tx.append(
                Record(
                    type=RecordType.ADMISSION,
                    phase=Phase.DENIED if isinstance(error, Refused) else Phase.FAILED,
                    reference=reference,
                    actor=Actor.of(identity) if identity else None,
                    target=Target(account=str(error.context["account"])) if "account" in error.context else None,
                    basis=self._basis(tx, policy),
                    request_sha256=None if decided is None else decided.question_sha256,
                    code=error.code,
                    detail={**_detail(error), "evidence": evidence.level.value},
                )
            )

    def _basis(self, tx: Tx, policy: InForce | None) -> Basis | None:
        """The bundle that decided, or would have; a refusal goes on record also where the register is broken."""
        if policy is not None:
            return Basis(policy.content_hash)
        try:
            return Basis(self.policy.content_hash(tx))
        except BridgeError:
            return None


def _unknown(claims: SignedClaims) -> Detail:
    """Claims that GitLab has begun to sign: names only, and as many as fit into a record."""
    names = unknown_claims(claims)
    if not names:
        return {}
    shown = tuple(name if _CLAIM.fullmatch(name) else "?" for name in names[:SHOWN_CLAIMS])
    return {"unknown_claims": shown, "unknown_claim_count": len(names)}


def _detail(error: BridgeError | None) -> dict[str, str | int | bool]:
    if error is None:
        return {}
    return {key: _plain(value) for key, value in error.context.items() if key != "reference"}


def _plain(value: object) -> str | int | bool:
    return value if isinstance(value, str | int | bool) else str(value)
