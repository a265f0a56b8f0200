"""Tickets for runs that are admitted already: for the SSH connection, the login node, and the compute nodes.

Runs in the broker. Nobody asks it for "tickets of NAME": a caller shows a run's session secret, or is a node on which
the run's Slurm job was released; whom the tickets are for is what the broker itself sealed at admission.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from bridge import grants
from bridge.audit.ledger import Ledger, View
from bridge.audit.record import Actor, Phase, Record, RecordType
from bridge.buckets import TokenBuckets
from bridge.errors import BridgeError, Defect, NotFound, PolicyRefused, TokenRefused, TooMany
from bridge.folding import Folding
from bridge.kerberos.impersonation import Impersonator
from bridge.kerberos.negotiate import NegotiateAcceptor, Negotiated
from bridge.lifecycle import ON_SLURM, require_live
from bridge.model import Cluster, Grant, Run, RunId, Stage, TicketBundle
from bridge.nodeclaims import CLAIM_LIFE, ClaimBook, NodeClaim, too_many
from bridge.nodetickets import OnNode, on_node
from bridge.records import basis_of, target_of, tickets_of
from bridge.references import new_reference
from bridge.seal import GrantSeal
from bridge.sealed import SealedRegister
from bridge.standing import require_standing
from runner.binding import node_binding

END_GRACE: Final = timedelta(minutes=15)
"""After the job's time-out its Slurm jobs are cancelled and its files removed: that may take a new connection."""


END_SECONDS: Final = 600
"""Life of the tickets with which a stopped run is ended: one connection, and what Slurm takes to confirm."""


class Use(enum.StrEnum):
    """What a bundle is for; each use gets the least set of services."""

    SSH = "ssh"
    LOGIN = "login"
    END = "end"
    """The login node, to cancel a run's jobs and remove its files: the only one that a kill switch leaves."""


@dataclass(frozen=True, slots=True)
class TicketDesk:
    """Hands out ticket bundles; every part is passed in."""

    ledger: Ledger
    impersonator: Impersonator
    acceptor: NegotiateAcceptor
    clusters: Callable[[], Sequence[Cluster]]
    seal: GrantSeal
    register: SealedRegister
    clock: Callable[[], datetime]
    claims: ClaimBook
    requests: TokenBuckets
    """How often each principal may ask as a node."""
    denials: Folding = field(default_factory=Folding)

    def for_run(self, run_id: RunId, session: str, use: Use) -> TicketBundle:
        """Return a fresh bundle of a live run for a caller with its session secret; raises BridgeError."""
        with self.ledger.read() as view:
            self._require_session(view, run_id, session)
        grant = self._sealed_grant(run_id, timedelta(0) if use is Use.LOGIN else END_GRACE)
        targets = list(grant.cluster.login_targets if use is Use.LOGIN else grant.cluster.ssh_targets)
        return self._make(run_id, grant, targets, use)

    def claim(self, authorization: str, slurm_job_id: int, uid: int, node: str) -> NodeClaim:
        """Check that the caller is ``node`` and the job is ours, released and of ``uid``; raises BridgeError.

        The caller's proof is HTTP Negotiate with its host keytab. NotFound ``node.not_ours`` for any other job.
        """
        with self._denials_on_record(slurm_job_id):
            caller = self._caller(authorization, node_binding("tickets", slurm_job_id, uid, node))
            host = _host_of(caller.principal)
            if node not in (host, host.partition(".")[0]):
                raise _wrong_node(host, node)
        run, stage = self._job(host, caller.principal, slurm_job_id)
        grant = self._sealed_grant(run.run_id)
        if stage.state not in ON_SLURM or grant.account.uid != uid:
            raise _not_ours(slurm_job_id)
        with self._denials_on_record(slurm_job_id, run.run_id), self.ledger.read() as view:
            require_standing(self.register.current(view), grant)
        claim = NodeClaim(
            claim_id=secrets.token_urlsafe(16),
            run_id=run.run_id,
            slurm_job_id=slurm_job_id,
            stage=stage.name,
            invocation=stage.invocation,
            node=host,
            reply=_base64(caller.reply),
            expires=self.clock() + CLAIM_LIFE,
        )
        with self._denials_on_record(slurm_job_id, run.run_id):
            return self.claims.add(claim)

    def for_node(self, claim_id: str) -> tuple[str, TicketBundle]:
        """Return where the node keeps the cache, and the bundle, for a claim; each claim once."""
        claim = self.claims.take(claim_id, self.clock())
        try:
            grant = self._sealed_grant(claim.run_id)
            bundle = self._make(claim.run_id, grant, list(grant.cluster.node_targets), None, claim)
        finally:
            self.claims.done(claim_id)
        return grant.cluster.node_ccache.replace("%{uid}", str(grant.account.uid)), bundle

    def released(self, authorization: str, slurm_job_id: int, uid: int, node: str) -> str:
        """Record that a node has removed a job's tickets, once for each delivery; return our reply token."""
        with self._denials_on_record(slurm_job_id):
            caller = self._caller(authorization, node_binding("released", slurm_job_id, uid, node))
            host = _host_of(caller.principal)
        run, stage = self._job(host, caller.principal, slurm_job_id)
        with self.ledger.read() as view:
            state = on_node(view.timeline(run_id=run.run_id), slurm_job_id, host)
        short = host.partition(".")[0]
        if run.grant.account.uid != uid or node not in (host, short) or state is OnNode.NEVER:
            raise _not_ours(slurm_job_id)
        if state is OnNode.REMOVED:
            return _base64(caller.reply)
        with self.ledger.begin() as tx:
            tx.append(
                Record(
                    type=RecordType.TICKETS,
                    phase=Phase.EVENT,
                    reference=new_reference(),
                    run_id=run.run_id,
                    invocation=stage.invocation,
                    stage=stage.name,
                    actor=Actor.of(run.grant.identity),
                    target=target_of(run.grant, host),
                    slurm_job_id=slurm_job_id,
                    detail={"use": "node", "removed": True},
                )
            )
        return _base64(caller.reply)

    def _caller(self, authorization: str, binding: bytes) -> Negotiated:
        """Say who calls, host or not, if they have not called too often; raises TooMany ``node.too_many``."""
        caller = self.acceptor.accept_header(f"Negotiate {authorization}", binding)
        if not self.requests.take(caller.principal):
            raise too_many(caller.principal)
        return caller

    def _job(self, host: str, principal: str, slurm_job_id: int) -> tuple[Run, Stage]:
        for cluster in self.clusters():
            if principal != f"host/{host}@{cluster.realm}" or host not in cluster.nodes:
                continue
            try:
                with self.ledger.read() as view:
                    return view.run_by_slurm_job(cluster.name, slurm_job_id)
            except NotFound:
                continue
        raise _not_ours(slurm_job_id)

    def _require_session(self, view: View, run_id: RunId, session: str) -> None:
        try:
            known = view.session(run_id).session_hash
        except NotFound:
            raise session_invalid() from None
        if not hmac.compare_digest(known, hashlib.sha256(session.encode()).digest()):
            raise session_invalid()

    def _sealed_grant(self, run_id: RunId, grace: timedelta = timedelta(0)) -> Grant:
        """Return the grant as this broker sealed it, for a run that is alive and in its time."""
        with self._denials_on_record(run_id=run_id), self.ledger.read() as view:
            run, sealed = view.run(run_id), view.sealed_grant(run_id)
            require_live(run.state)
            self.seal.check(sealed, run.not_after)
        if self.clock() >= run.not_after + grace:
            raise PolicyRefused(
                "run.over_time",
                "The job's time-out in GitLab has passed, so its run gets no more tickets.",
                "Give the job a longer timeout, then retry it.",
            )
        return grants.from_json(sealed.grant_json)

    @contextmanager
    def _denials_on_record(self, slurm_job_id: int | None = None, run_id: RunId | None = None) -> Iterator[None]:
        """Put on record who tries to get tickets in another's name, and a run that somebody has changed."""
        try:
            yield
        except (PolicyRefused, TooMany, Defect) as error:
            denial = Record(
                type=RecordType.TICKETS,
                phase=Phase.DENIED,
                reference="",
                run_id=run_id,
                slurm_job_id=slurm_job_id,
                code=error.code,
                detail={key: str(value) for key, value in error.context.items()},
            )
            raise error.referenced(self.denials.note(_kind(denial), partial(self._append_denial, denial))) from error

    def _make(
        self, run_id: RunId, grant: Grant, targets: list[str], use: Use | None, claim: NodeClaim | None = None
    ) -> TicketBundle:
        """Intent, tickets, outcome; no use is a node's."""
        intent = Record(
            type=RecordType.TICKETS,
            phase=Phase.INTENT,
            reference=new_reference(),
            run_id=run_id,
            invocation=claim.invocation if claim else None,
            stage=claim.stage if claim else None,
            actor=Actor.of(grant.identity),
            target=target_of(grant, claim.node if claim else None),
            basis=basis_of(grant),
            slurm_job_id=claim.slurm_job_id if claim else None,
            detail={"use": "node" if use is None else use.value},
        )
        with self._denials_on_record(intent.slurm_job_id, run_id), self.ledger.begin() as tx:
            if use is not Use.END:
                require_standing(self.register.current(tx), grant)
            tx.append(intent)
        account, seconds = grant.account, grant.limits.ticket_minutes * 60
        if use is Use.END:
            seconds = min(seconds, END_SECONDS)
        try:
            bundle = self.impersonator.tickets(account.name, account.uid, targets, seconds)
        except BridgeError as error:
            self._append(_outcome(intent, Phase.FAILED, code=error.code))
            raise error.referenced(intent.reference) from error
        self._append(_outcome(intent, Phase.OK, tickets=tickets_of(bundle)))
        return bundle

    def _append_denial(self, denial: Record, reference: str, folded: int) -> None:
        detail = {**denial.detail, "folded": folded} if folded else denial.detail
        self._append(replace(denial, reference=reference, detail=detail))

    def _append(self, record: Record) -> None:
        with self.ledger.begin() as tx:
            tx.append(record)


def session_invalid() -> TokenRefused:
    """The one answer to everybody who does not hold a live run's session secret (T50)."""
    return TokenRefused(
        "session.invalid",
        "The session secret is not that of a live run.",
        "Retry the job in GitLab: a new job gets a new run.",
    )


def _outcome(intent: Record, phase: Phase, **changes: object) -> Record:
    return replace(intent, phase=phase, **changes)  # type: ignore[arg-type]


def _kind(denial: Record) -> str:
    """Name what a flood of denials has in common: the code, and whoever asks or the run."""
    who = denial.detail.get("principal") or denial.detail.get("host") or denial.run_id or ""
    return f"{denial.code} {who}"


def _host_of(principal: str) -> str:
    service, _, rest = principal.partition("/")
    if service != "host" or not rest or "/" in rest:
        raise PolicyRefused(
            "node.not_a_host",
            "Only a compute node may ask for the tickets of a Slurm job.",
            "Call this with the node's own host/ keytab, from Slurm's prolog.",
            principal=principal,
        )
    return rest.rpartition("@")[0]


def _wrong_node(host: str, node: str) -> PolicyRefused:
    return PolicyRefused(
        "node.wrong_node",
        "A node asked for tickets in another node's name.",
        "Check the keytab and the node's name in slurm.conf.",
        host=host,
        node=node,
    )


def _not_ours(slurm_job_id: int) -> NotFound:
    return NotFound(
        "node.not_ours",
        "This Slurm job is not one of the bridge's.",
        "Nothing is wrong: other jobs need nothing from the bridge.",
        slurm_job_id=slurm_job_id,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
