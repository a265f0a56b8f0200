"""What every act upon policy has in common: who may do it is asked anew in the transaction that does it, on record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bridge.active import ActivePolicy
from bridge.audit.ledger import Ledger, Tx
from bridge.audit.record import Basis, Phase, Record, RecordType
from bridge.errors import Conflict, NotFound, PolicyRefused, RequestRefused
from bridge.people.acts import Acts, Facts
from bridge.people.caller import Caller
from bridge.policy.roles import Role
from bridge.proposals import Proposal, ProposalState, person_of
from bridge.register import Register
from bridge.sealed import SealedRegister

MAX_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class PolicyActs:
    """Every part is passed in."""

    register: SealedRegister
    acts: Acts
    active: ActivePolicy
    clock: Callable[[], datetime]

    @property
    def ledger(self) -> Ledger:
        """The book."""
        return self.acts.ledger

    @contextmanager
    def on_record(self, act: str, caller: Caller, *roles: Role, person: bool = False) -> Iterator[None]:
        """Refuse whoever has none of the roles, or is no person at hand where one is needed; put refusals on record.

        What needs a person decides what is in force. So they must have said this very thing, and not only be there.
        """
        with self.acts.refusals(RecordType.POLICY, act, caller.principal):
            _require(caller, roles, person=person)
            if person:
                caller.require_bound()
            yield

    @contextmanager
    def change(self, caller: Caller, *roles: Role) -> Iterator[tuple[Tx, Register]]:
        """A transaction that changes the register, by a caller who has one of the roles at this very moment (T48)."""
        with self.register.begin() as (tx, register):
            now = self.active.base(tx).engine.bundle.roles.of(caller.principal)
            _require(dataclasses.replace(caller, roles=caller.roles & now), roles, person=False)
            yield tx, register


def policy_record(caller: Caller, act: str, reference: str, content_hash: str, facts: Facts) -> Record:
    """The record of something that a caller did to policy."""
    detail = {"act": act, "by": caller.principal, **caller.proof, **facts}
    return Record(RecordType.POLICY, Phase.OK, reference, basis=Basis(content_hash), detail=detail)


def require_other_person(caller: Caller, first: str) -> None:
    """Pass for somebody else than ``first``, by whatever principal; raises PolicyRefused ``policy.four_eyes``."""
    if person_of(caller.principal) == person_of(first):
        raise PolicyRefused(
            "policy.four_eyes",
            "Nobody approves what they proposed themselves.",
            "Ask another person who may approve to look at it.",
            principal=caller.principal,
            first=first,
        )


def one_proposal(register: Register, proposal_id: str, version: int) -> Proposal:
    """The proposal as the caller has read it; raises NotFound ``policy.unknown``, Conflict ``policy.changed``."""
    proposal = register.proposal(proposal_id)
    if proposal is None:
        raise NotFound(
            "policy.unknown",
            "There is no such proposal.",
            "See 'ci-bridge policy proposals' for those there are.",
            proposal=proposal_id[:64],
        )
    if proposal.version != version:
        raise changed_since(proposal)
    return proposal


def require_state(proposal: Proposal, *states: ProposalState) -> None:
    """Pass in one of these states; raises Conflict ``policy.state``."""
    if proposal.state not in states:
        raise Conflict(
            "policy.state",
            f"This proposal is {proposal.state.value}.",
            "See 'ci-bridge policy proposals' for how it stands.",
            proposal=proposal.proposal_id,
        )


def changed_since(proposal: Proposal) -> Conflict:
    """``policy.changed``"""
    return Conflict(
        "policy.changed",
        "The proposal has changed since you read it.",
        "Read it again, then decide.",
        proposal=proposal.proposal_id,
        version=proposal.version,
    )


def stale(reference: str) -> Conflict:
    """``policy.stale``"""
    return Conflict(
        "policy.stale",
        "Another bundle came into force since this was written.",
        "Put the change onto the bundle in force, then submit it again.",
        of=reference,
    )


def checked_text(text: str) -> str:
    """A title or reason for the record and for people's eyes; raises RequestRefused ``policy.text``."""
    if not text.strip() or len(text) > MAX_TEXT or not text.replace("\n", " ").isprintable():
        raise RequestRefused(
            "policy.text",
            "This needs a title, or a reason, for the record.",
            f"Say it in 1 to {MAX_TEXT} printable characters.",
        )
    return text.strip()


def _require(caller: Caller, roles: tuple[Role, ...], *, person: bool) -> None:
    caller.require(*roles)
    if person:
        caller.require_person()
