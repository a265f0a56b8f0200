"""What the broker does for each request of web: between the words of its socket, and admission and tickets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.admission import Admission
from bridge.broker.fields import malformed, numbers, texts
from bridge.broker.peer import Peer
from bridge.broker.server import Answer, Handler
from bridge.model import Evidence, JobFacts, RunId, UnverifiedToken
from bridge.ticketing import TicketDesk, Use


class Desk:
    """Translates; decides nothing."""

    def __init__(self, admission: Admission, tickets: TicketDesk) -> None:
        self._admission = admission
        self._tickets = tickets

    def handlers(self) -> Mapping[str, Handler]:
        """Return what the broker's server answers, by name of the operation."""
        return {
            "ping": lambda request, peer: ({}, b""),
            "admit": self._admit,
            "tickets": self._run_tickets,
            "node_claim": self._node_claim,
            "node_tickets": self._node_tickets,
            "node_dropped": self._node_dropped,
            "node_released": self._node_released,
        }

    def _admit(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        admitted = self._admission.admit(_evidence(request))
        header = {
            "run_id": admitted.run_id,
            "attempt": admitted.attempt,
            "session": admitted.session,
            "grant": admitted.grant_json.decode(),
            "reference": admitted.reference,
        }
        return header, admitted.bundle.ccache

    def _run_tickets(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        run_id, session, use = texts(request, "run_id", "session", "use")
        bundle = self._tickets.for_run(RunId(run_id), session, Use(use))
        return {}, bundle.ccache

    def _node_claim(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        token, node = texts(request, "token", "node")
        slurm_job_id, uid = numbers(request, "slurm_job_id", "uid")
        claim = self._tickets.claim(token, slurm_job_id, uid, node)
        return {"claim_id": claim.claim_id, "run_id": claim.run_id, "reply": claim.reply}, b""

    def _node_tickets(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        (claim_id,) = texts(request, "claim_id")
        cache, bundle = self._tickets.for_node(claim_id)
        return {"cache": cache}, bundle.ccache

    def _node_dropped(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        (claim_id,) = texts(request, "claim_id")
        self._tickets.claims.done(claim_id)
        return {}, b""

    def _node_released(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        token, node = texts(request, "token", "node")
        slurm_job_id, uid = numbers(request, "slurm_job_id", "uid")
        return {"reply": self._tickets.released(token, slurm_job_id, uid, node)}, b""


def _evidence(request: Mapping[str, Any]) -> Evidence:
    """Read the evidence of a job; web has checked its form, and the broker does not rely on that."""
    try:
        given = request["evidence"]
        facts = JobFacts(**given["facts"])
        numbers = (facts.job_id, facts.project_id, facts.pipeline_id, facts.timeout_seconds)
        token = given["id_token"]
        texts = (given["job_token"], given["scheduler_parameters"], facts.ref, facts.sha)
        cluster = given["cluster"]
        well_formed = (
            all(type(number) is int for number in numbers)
            and all(type(text) is str for text in texts)
            and type(facts.user_id) in (int, type(None))
            and type(facts.server_url) in (str, type(None))
            and type(token) in (str, type(None))
            and type(cluster) in (str, type(None))
        )
    except (KeyError, TypeError) as error:
        raise malformed() from error
    if not well_formed:
        raise malformed()
    return Evidence(None if token is None else UnverifiedToken(token), texts[0], facts, texts[1], cluster)
