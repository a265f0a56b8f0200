"""Proposes and approves policy bundles: never one person alone, and never another content than was read.

Runs in the broker, which therefore knows by itself which bundle is in force; web can only ask. ``activating`` puts in
force what was approved here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from bridge.active import InForce
from bridge.audit.ledger import Tx
from bridge.errors import Conflict, PolicyRefused
from bridge.people.acts import Facts
from bridge.people.bundling import Files, accepted, require_good, require_governable
from bridge.people.caller import Caller
from bridge.people.policy_acts import (
    PolicyActs,
    changed_since,
    checked_text,
    one_proposal,
    policy_record,
    require_other_person,
    require_state,
    stale,
)
from bridge.policy.bundle import checked_bundle
from bridge.policy.files import content_hash
from bridge.policy.roles import Role
from bridge.proposals import OPEN_STATES, Proposal, ProposalState
from bridge.references import new_reference
from bridge.register import Register

MAX_OPEN: Final = 20
"""Proposals of one author that are not at an end: each may hold a bundle."""


@dataclass(frozen=True, slots=True)
class PolicyDesk:
    """Every part is passed in."""

    acts: PolicyActs

    def propose(self, caller: Caller, title: str, files: Files, base_hash: str | None = None) -> Proposal:
        """Keep a new draft; the files need not make a good bundle yet.

        ``base_hash`` is the bundle that the author began with; left out, it is the one in force. Raises PolicyRefused,
        RequestRefused, Conflict ``policy.stale`` or ``policy.too_many``.
        """
        with self.acts.on_record("propose", caller, Role.AUTHOR):
            texts, checked = accepted(files), checked_text(title)
            with self.acts.change(caller, Role.AUTHOR) as (tx, register):
                _require_room(register, caller)
                base = self._base(tx, base_hash)
                now = self.acts.clock()
                proposal = Proposal(
                    proposal_id=new_reference(),
                    content_hash=_kept(tx, texts, caller, self.acts),
                    base_hash=base.content_hash,
                    base_number=base.number,
                    author=caller.principal,
                    title=checked,
                    state=ProposalState.DRAFT,
                    version=1,
                    created_at=now,
                    changed_at=now,
                )
                _put(tx, proposal, "proposed", caller)
            return proposal

    def rewrite(
        self, caller: Caller, proposal_id: str, version: int, files: Files, base_hash: str | None = None
    ) -> Proposal:
        """Put new content into one's own proposal; whatever was said of the old content counts no more."""
        with self.acts.on_record("rewrite", caller, Role.AUTHOR):
            texts = accepted(files)
            with self.acts.change(caller, Role.AUTHOR) as (tx, register):
                before = _own(caller, register, proposal_id, version)
                base = self._base(tx, base_hash)
                proposal = self._undecided(
                    before,
                    state=ProposalState.DRAFT,
                    content_hash=_kept(tx, texts, caller, self.acts),
                    base_hash=base.content_hash,
                    base_number=base.number,
                )
                _put(tx, proposal, "rewritten", caller)
            return proposal

    def submit(self, caller: Caller, proposal_id: str, version: int, base_hash: str | None = None) -> Proposal:
        """Put it before the approvers; what was submitted or approved before can be submitted again.

        It must be a good bundle, and its cases must come out as written. Where another bundle came into force since it
        was written, ``base_hash`` must name that one: so that nobody takes back by oversight what others changed.
        """
        with self.acts.on_record("submit", caller, Role.AUTHOR):
            # Before anybody is made to wait: a large bundle takes its time.
            checked = self._require_fit(_own(caller, self.acts.register.read(), proposal_id, version))
            with self.acts.change(caller, Role.AUTHOR) as (tx, register):
                before = _own(caller, register, proposal_id, version)
                if before.content_hash != checked:
                    raise changed_since(before)
                base = self._base(tx, base_hash)
                if base_hash is None and (before.base_hash, before.base_number) != (base.content_hash, base.number):
                    raise stale(proposal_id)
                proposal = self._undecided(
                    before, state=ProposalState.SUBMITTED, base_hash=base.content_hash, base_number=base.number
                )
                _put(tx, proposal, "submitted", caller)
            return proposal

    def withdraw(self, caller: Caller, proposal_id: str, version: int) -> Proposal:
        """Take one's own proposal back."""
        with (
            self.acts.on_record("withdraw", caller, Role.AUTHOR),
            self.acts.change(caller, Role.AUTHOR) as (tx, register),
        ):
            proposal = self._changed(_own(caller, register, proposal_id, version), state=ProposalState.WITHDRAWN)
            _put(tx, proposal, "withdrawn", caller)
            return proposal

    def decide(
        self, caller: Caller, proposal_id: str, version: int, read_hash: str, *, approve: bool, reason: str
    ) -> Proposal:
        """Approve or reject what somebody else submitted; ``read_hash`` is the content that the caller has read."""
        act, done = ("approve", "approved") if approve else ("reject", "rejected")
        with self.acts.on_record(act, caller, Role.APPROVER, person=True):
            checked = checked_text(reason)
            with self.acts.change(caller, Role.APPROVER) as (tx, register):
                before = one_proposal(register, proposal_id, version)
                require_state(before, ProposalState.SUBMITTED)
                require_other_person(caller, before.author)
                if read_hash != before.content_hash:
                    raise changed_since(before)
                proposal = self._changed(
                    before,
                    state=ProposalState.APPROVED if approve else ProposalState.REJECTED,
                    decided_by=caller.principal,
                    decided_at=self.acts.clock(),
                    reason=checked,
                )
                _put(tx, proposal, done, caller)
            return proposal

    def _base(self, tx: Tx, base_hash: str | None) -> InForce:
        base = self.acts.active.base(tx)
        if base_hash not in (None, base.content_hash):
            raise stale(base.content_hash)
        return base

    def _require_fit(self, proposal: Proposal) -> str:
        """That it could be put in force; returns the hash of what was looked at."""
        with self.acts.ledger.read() as view:
            bundle = checked_bundle(self.acts.active.files(view, proposal.content_hash))
        require_good(bundle)
        require_governable(bundle.roles)
        return bundle.content_hash

    def _undecided(self, proposal: Proposal, **members: object) -> Proposal:
        return self._changed(proposal, decided_by=None, decided_at=None, reason="", **members)

    def _changed(self, proposal: Proposal, **members: object) -> Proposal:
        now = self.acts.clock()
        return dataclasses.replace(proposal, version=proposal.version + 1, changed_at=now, **members)  # type: ignore[arg-type]


def _own(caller: Caller, register: Register, proposal_id: str, version: int) -> Proposal:
    proposal = one_proposal(register, proposal_id, version)
    if proposal.author != caller.principal:
        raise PolicyRefused(
            "policy.not_author",
            "Only its author changes a proposal.",
            "Write one of your own.",
            proposal=proposal_id,
        )
    require_state(proposal, *OPEN_STATES)
    return proposal


def _require_room(register: Register, caller: Caller) -> None:
    mine = [one for one in register.proposals if one.author == caller.principal and one.state in OPEN_STATES]
    if len(mine) >= MAX_OPEN:
        raise Conflict(
            "policy.too_many",
            f"You have {len(mine)} proposals open.",
            "Withdraw those that you don't need any more; 'ci-bridge policy proposals' lists them.",
        )


def _kept(tx: Tx, files: Files, caller: Caller, acts: PolicyActs) -> str:
    """Keep the files under the hash of their content; returns it."""
    named = content_hash(files)
    tx.keep_bundle(named, files, caller.principal, acts.clock())
    return named


def _put(tx: Tx, proposal: Proposal, act: str, caller: Caller) -> None:
    tx.put_proposal(proposal)
    facts: Facts = {
        "author": proposal.author,
        "title": proposal.title,
        "version": proposal.version,
        "base": proposal.base_hash,
    }
    if proposal.reason:
        facts["reason"] = proposal.reason
    tx.append(policy_record(caller, act, proposal.proposal_id, proposal.content_hash, facts))
