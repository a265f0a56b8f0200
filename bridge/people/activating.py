"""Puts bundles in force: what was approved, what was before, and in an emergency what two operators agree on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bridge.active import InForce
from bridge.audit.ledger import Tx
from bridge.errors import Conflict, NotFound, PolicyRefused, RequestRefused
from bridge.people.acts import Facts
from bridge.people.bundling import Files, accepted, require_good, require_governable, require_no_more_reach
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
from bridge.policy.bundle import Bundle, checked_bundle
from bridge.policy.roles import Role, Roles
from bridge.proposals import (
    APPROVAL_LIFE,
    EMERGENCY_LIFE,
    EMERGENCY_WINDOW,
    NUMBER_OF_NONE,
    Activation,
    ActivationKind,
    ProposalState,
    emergency_time,
)
from bridge.references import new_reference
from bridge.register import Register

MAX_MINUTES: Final = EMERGENCY_LIFE // timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ActivationDesk:
    """Every part is passed in."""

    acts: PolicyActs

    def activate(self, caller: Caller, proposal_id: str, version: int, reason: str) -> Activation:
        """Put an approved proposal in force, everywhere and at once.

        Raises PolicyRefused, Conflict ``policy.state``, ``policy.changed``, ``policy.approval_expired`` or
        ``policy.stale``, and RequestRefused where it is no good bundle any more.
        """
        with self.acts.on_record("activate", caller, Role.APPROVER, Role.OPERATOR, person=True):
            checked, why = checked_text(reason), one_proposal(self.acts.register.read(), proposal_id, version)
            require_state(why, ProposalState.APPROVED)
            # Before anybody is made to wait; and the engine is ready then for the first job.
            engine = self._ready(why.content_hash)
            require_good(engine.engine.bundle)
            require_governable(engine.engine.bundle.roles)
            with self.acts.change(caller, Role.APPROVER, Role.OPERATOR) as (tx, register):
                before = one_proposal(register, proposal_id, version)
                require_state(before, ProposalState.APPROVED)
                if before.content_hash != engine.content_hash:
                    raise changed_since(before)
                now = self.acts.clock()
                latest = max(now, self.acts.active.latest(tx))
                if before.decided_at is None or latest >= before.decided_at + APPROVAL_LIFE:
                    raise _expired(proposal_id)
                base = self.acts.active.base(tx)
                if (before.base_hash, before.base_number) != (base.content_hash, base.number):
                    raise stale(proposal_id)
                self._keep_first(tx, base, caller)
                tx.put_proposal(
                    dataclasses.replace(
                        before,
                        state=ProposalState.ACTIVATED,
                        version=before.version + 1,
                        changed_at=now,
                        activated_by=caller.principal,
                    )
                )
                return self._activate(
                    tx, register, caller, ActivationKind.ACTIVATE, before.content_hash, checked, proposal_id=proposal_id
                )

    def roll_back(self, caller: Caller, to_hash: str, reason: str) -> Activation:
        """Put a bundle in force again that was approved and in force before; it also ends an emergency.

        One person does it, so it gives nobody a role that they don't have now. Where nothing was ever activated, going
        back to the directory's bundle ends every emergency, and the directory counts as before; the answer has number
        0 then. Raises PolicyRefused ``policy.more_roles``, NotFound ``policy.never_active``, Conflict
        ``policy.in_force``.
        """
        with self.acts.on_record("roll back", caller, Role.APPROVER, Role.OPERATOR, person=True):
            checked = checked_text(reason)
            with self.acts.ledger.read() as view:
                _require_was_in_force(self.acts.register.current(view), to_hash, self.acts.active.base(view))
            target = self._ready(to_hash)
            with self.acts.change(caller, Role.APPROVER, Role.OPERATOR) as (tx, register):
                _require_was_in_force(register, to_hash, self.acts.active.base(tx))
                if self.acts.active.content_hash(tx) == to_hash == self.acts.active.base(tx).content_hash:
                    raise Conflict(
                        "policy.in_force", "This bundle is in force already.", "Nothing is to be done.", bundle=to_hash
                    )
                if self.acts.active.base(tx).number == NUMBER_OF_NONE:
                    return self._end_emergencies(tx, register, caller, to_hash, checked)
                _require_no_more_roles(target.engine.bundle.roles, self.acts.active.base(tx).engine.bundle.roles)
                return self._activate(tx, register, caller, ActivationKind.ROLL_BACK, to_hash, checked)

    def break_glass(
        self, caller: Caller, minutes: int, reason: str, *, to_hash: str | None = None, files: Files | None = None
    ) -> Activation:
        """Ask that a bundle be in force for some time without an approval; another operator must confirm.

        The bundle is one that is kept, by its hash, or comes with the question. Raises PolicyRefused, RequestRefused,
        Conflict ``policy.emergency_spent``.
        """
        with self.acts.on_record("break glass", caller, Role.OPERATOR, person=True):
            checked = checked_text(reason)
            if not 0 < minutes <= MAX_MINUTES:
                raise RequestRefused(
                    "policy.emergency_life",
                    "That long nothing stays in force without an approval.",
                    f"Ask for 1 to {MAX_MINUTES} minutes.",
                )
            texts = None if files is None else accepted(files)
            bundle = self._fit_for_emergency(to_hash, texts)
            named = bundle.content_hash
            with self.acts.change(caller, Role.OPERATOR) as (tx, register):
                now = self.acts.clock()
                ends_at = now + timedelta(minutes=minutes)
                _require_time_left(register.activations, ends_at - now, now)
                require_no_more_reach(bundle.accounts, self.acts.active.base(tx).engine.bundle.accounts)
                if texts is not None:
                    tx.keep_bundle(named, texts, caller.principal, now)
                return self._activate(
                    tx, register, caller, ActivationKind.BREAK_GLASS, named, checked, at=now, ends_at=ends_at
                )

    def confirm(self, caller: Caller, number: int, read_hash: str) -> Activation:
        """Confirm another operator's emergency, having read its bundle; from now on it is in force."""
        with self.acts.on_record("confirm", caller, Role.OPERATOR, person=True):
            asked = _asked(self.acts.register.read().activations, number)
            rules = self._ready(asked.content_hash).engine.bundle.accounts
            with self.acts.change(caller, Role.OPERATOR) as (tx, register):
                asked = _asked(register.activations, number)
                require_no_more_reach(rules, self.acts.active.base(tx).engine.bundle.accounts)
                require_other_person(caller, asked.by)
                if read_hash != asked.content_hash:
                    raise stale(asked.content_hash)
                if any(one.number > number and _counted(one) for one in register.activations):
                    raise stale(asked.content_hash)
                now = self.acts.clock()
                confirmed = dataclasses.replace(asked, second=caller.principal)
                if asked.ends_at is None or not confirmed.in_force(now, self.acts.active.latest(tx)):
                    raise Conflict(
                        "policy.emergency_over",
                        "The time that was asked for is over, or has not begun.",
                        "Ask again, and look at the clocks of the bridge's machines.",
                        number=number,
                    )
                _require_time_left(register.activations, asked.ends_at - asked.at, now)
                tx.put_activation(confirmed)
                self._record(tx, confirmed, caller, "confirmed")
                return confirmed

    def _ready(self, wanted: str) -> InForce:
        """The bundle, parsed and kept ready; in force it is not yet."""
        with self.acts.ledger.read() as view:
            return InForce(self.acts.active.engine(view, wanted), NUMBER_OF_NONE)

    def _fit_for_emergency(self, to_hash: str | None, files: Files | None) -> Bundle:
        bundle = None if files is None else checked_bundle(files)
        if bundle is None and to_hash is not None:
            bundle = self._ready(to_hash).engine.bundle
        if bundle is None or (to_hash is not None and files is not None):
            raise RequestRefused(
                "policy.which_bundle",
                "It is not clear which bundle is to be in force.",
                "Give either the hash of a bundle that the bridge has, or the files of one.",
            )
        require_good(bundle)
        return bundle

    def _keep_first(self, tx: Tx, base: InForce, caller: Caller) -> None:
        """Keep the directory's bundle as it is when another takes its place, so that one can go back to it."""
        if base.number == NUMBER_OF_NONE:
            tx.keep_bundle(base.content_hash, base.engine.bundle.files, caller.principal, self.acts.clock())

    def _activate(
        self,
        tx: Tx,
        register: Register,
        caller: Caller,
        kind: ActivationKind,
        to_hash: str,
        reason: str,
        *,
        proposal_id: str | None = None,
        at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> Activation:
        activation = Activation(
            number=max((one.number for one in register.activations), default=NUMBER_OF_NONE) + 1,
            content_hash=to_hash,
            kind=kind,
            by=caller.principal,
            reason=reason,
            at=at or self.acts.clock(),
            proposal_id=proposal_id,
            ends_at=ends_at,
        )
        tx.put_activation(activation)
        self._record(tx, activation, caller, kind.value)
        return activation

    def _end_emergencies(self, tx: Tx, register: Register, caller: Caller, to_hash: str, reason: str) -> Activation:
        """End those in force, those below them, and those that nobody has confirmed yet; nothing takes their place."""
        now, before = self.acts.clock(), self.acts.active.content_hash(tx)
        numbers = [one.number for one in register.activations if one.ends_at is not None and one.ends_at > now]
        for one in register.activations:
            if one.number in numbers:
                tx.put_activation(dataclasses.replace(one, ends_at=now))
        facts: Facts = {"reason": reason, "before": before, "ended": ", ".join(map(str, sorted(numbers)))}
        tx.append(policy_record(caller, ActivationKind.ROLL_BACK.value, new_reference(), to_hash, facts))
        return Activation(NUMBER_OF_NONE, to_hash, ActivationKind.ROLL_BACK, caller.principal, reason, now)

    def _record(self, tx: Tx, activation: Activation, caller: Caller, act: str) -> None:
        facts: Facts = {
            "number": activation.number,
            "reason": activation.reason,
            "asked_by": activation.by,
            "before": self.acts.active.content_hash(tx),
        }
        if activation.ends_at is not None:
            facts["ends_at"] = activation.ends_at.isoformat(timespec="seconds")
        reference = activation.proposal_id or new_reference()
        tx.append(policy_record(caller, act, reference, activation.content_hash, facts))


def _counted(activation: Activation) -> bool:
    return not activation.is_emergency or activation.second is not None


def _require_was_in_force(register: Register, to_hash: str, base: InForce) -> None:
    """That it was approved: an emergency's bundle, or one that was only proposed, is nothing to go back to.

    ``base`` is what an emergency stands on: the directory's bundle where nothing was ever activated.
    """
    approved = {base.content_hash} | {one.content_hash for one in register.activations if not one.is_emergency}
    first = next((one for one in register.activations if one.kind is ActivationKind.ACTIVATE), None)
    proposal = None if first is None or first.proposal_id is None else register.proposal(first.proposal_id)
    if proposal is not None:
        # The directory's, which the first activation took the place of.
        approved.add(proposal.base_hash)
    if to_hash not in approved:
        raise NotFound(
            "policy.never_active",
            "This bundle was never approved and in force.",
            "See 'ci-bridge policy history' for those that were.",
            bundle=to_hash[:64],
        )


def _require_no_more_roles(then: Roles, now: Roles) -> None:
    more = sorted(who for who, has in then.by_principal.items() if not has <= now.of(who))
    if more:
        raise PolicyRefused(
            "policy.more_roles",
            "By that bundle people would have roles that they don't have now.",
            "Propose it as a new bundle, so that somebody else approves it.",
            principals=tuple(more),
        )


def _require_time_left(activations: Iterable[Activation], asked: timedelta, now: datetime) -> None:
    spent = emergency_time(activations, now - EMERGENCY_WINDOW)
    if spent + asked > EMERGENCY_LIFE:
        raise Conflict(
            "policy.emergency_spent",
            f"In one day emergencies have {MAX_MINUTES} minutes, and {spent // timedelta(minutes=1)} were given.",
            "Ask for less, or propose the bundle and have it approved.",
        )


def _asked(activations: Iterable[Activation], number: int) -> Activation:
    asked = next((one for one in activations if one.number == number), None)
    if asked is None or not asked.is_emergency or asked.second is not None:
        raise NotFound(
            "policy.nothing_to_confirm",
            "There is nothing to confirm under this number.",
            "See 'ci-bridge policy history' for what was asked.",
            number=number,
        )
    return asked


def _expired(proposal_id: str) -> Conflict:
    return Conflict(
        "policy.approval_expired",
        f"This was not approved within the last {APPROVAL_LIFE.days} days.",
        "Ask its author to submit it again.",
        proposal=proposal_id,
    )
