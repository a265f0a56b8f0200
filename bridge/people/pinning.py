"""Pins an account at its first use by an identity provider's word, so that a later owner of the name is noticed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bridge.audit.ledger import Tx
from bridge.audit.record import RecordType, Target
from bridge.errors import Conflict
from bridge.model import Grant
from bridge.people.acts import act_record
from bridge.references import new_reference
from bridge.register import Link, LinkMethod, LinkState
from bridge.sealed import SealedRegister


def pinned(register: SealedRegister, tx: Tx, grant: Grant, provider: str | None, now: datetime) -> Grant:
    """Return the grant with the link that it rests upon, made in ``tx`` at the first use by a ``provider``'s word.

    Raises Conflict ``link.taken`` where the person got another link between the decision and now.
    """
    if provider is None:
        return grant
    who, account = grant.identity, grant.account
    known = register.current(tx).active_link(who.issuer, who.user_id)
    if known is None:
        link = Link(
            link_id=new_reference(),
            issuer=who.issuer,
            user_id=who.user_id,
            user_login=who.user_login,
            account=account.name,
            uid=account.uid,
            method=LinkMethod.PROVIDER,
            state=LinkState.ACTIVE,
            proposed_by=f"provider:{provider}",
            proposed_at=now,
            reason=f"first use by the word of {provider}",
        )
        with register.change(tx):
            tx.put_link(link)
        facts: dict[str, str | int | bool] = {"issuer": who.issuer, "user_id": who.user_id, "method": "provider"}
        target = Target(account=account.name, uid=account.uid)
        tx.append(act_record(RecordType.LINK, "linked", link.proposed_by, link.link_id, facts, target))
        return replace(grant, link_id=link.link_id)
    if (known.account, known.uid) != (account.name, account.uid):
        raise Conflict(
            "link.taken",
            "This GitLab user is linked to another account already.",
            "End the other link first, or ask the administrators to.",
            issuer=who.issuer,
            user_id=who.user_id,
        )
    return replace(grant, link_id=known.link_id)
