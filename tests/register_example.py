"""Links, consents, kill switches, proposals and activations, for tests of the register."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.model import KillScope, KillSwitch
from bridge.proposals import Activation, ActivationKind, Proposal, ProposalState
from bridge.register import Consent, ConsentMode, Link, LinkMethod, LinkState, ProjectRef

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
GITLAB = "https://gitlab.realm.test"
CONTENT = "c" * 64
ADA, BEN, OLGA, OMAR = (f"{name}/admin@REALM.TEST" for name in ("ada", "ben", "olga", "omar"))


def link(link_id: str = "LINK-0000-0001", user_id: int = 101, **changes: Any) -> Link:
    """Alice's, as she linked it herself; unless told otherwise."""
    members: dict[str, Any] = {
        "issuer": GITLAB,
        "user_login": "alice",
        "account": "alice",
        "uid": 20001,
        "method": LinkMethod.SELF_SERVICE,
        "state": LinkState.ACTIVE,
        "proposed_by": "alice@REALM.TEST",
        "proposed_at": NOW,
        "reason": "linked by its owner",
        "decided_by": "alice@REALM.TEST",
        "decided_at": NOW,
    }
    return Link(link_id=link_id, user_id=user_id, **(members | changes))


def admin_link(link_id: str = "LINK-0000-0001", user_id: int = 101, **changes: Any) -> Link:
    """One that root proposed and eve approved."""
    members = {"method": LinkMethod.ADMIN, "proposed_by": "root@REALM.TEST", "decided_by": "eve@REALM.TEST"}
    return link(link_id, user_id, **(members | changes))


def consent(account: str = "alice", **changes: Any) -> Consent:
    """Alice allows project 7 only."""
    members: dict[str, Any] = {
        "uid": 20001,
        "mode": ConsentMode.LISTED,
        "allowed": (ProjectRef(GITLAB, 7),),
        "denied": (ProjectRef(GITLAB, 8), ProjectRef(GITLAB, 9)),
        "changed_by": "alice@REALM.TEST",
        "changed_at": NOW,
    }
    return Consent(account=account, **(members | changes))


def switch(switch_id: str = "KILL-0000-0001", number: int = 666, **changes: Any) -> KillSwitch:
    """One for mallory."""
    members: dict[str, Any] = {
        "scope": KillScope.USER,
        "issuer": GITLAB,
        "account": None,
        "reason": "stolen laptop",
        "actor": "root(0)",
        "created_at": NOW,
    }
    return KillSwitch(switch_id=switch_id, number=number, **(members | changes))


def proposal(proposal_id: str = "PROP-0000-0001", **changes: Any) -> Proposal:
    """Ada's, approved by ben."""
    members: dict[str, Any] = {
        "content_hash": CONTENT,
        "base_hash": "0" * 64,
        "base_number": 0,
        "author": ADA,
        "title": "more nodes",
        "state": ProposalState.APPROVED,
        "version": 3,
        "created_at": NOW,
        "changed_at": NOW,
        "decided_by": BEN,
        "decided_at": NOW,
        "reason": "read it",
    }
    return Proposal(proposal_id=proposal_id, **(members | changes))


def activation(number: int = 1, **changes: Any) -> Activation:
    """Of ada's proposal, by olga."""
    members: dict[str, Any] = {
        "content_hash": CONTENT,
        "kind": ActivationKind.ACTIVATE,
        "by": OLGA,
        "reason": "as agreed",
        "at": NOW,
        "proposal_id": "PROP-0000-0001",
    }
    return Activation(number=number, **(members | changes))


def broken_glass(number: int = 1, **changes: Any) -> Activation:
    """An emergency of olga and omar."""
    members: dict[str, Any] = {
        "kind": ActivationKind.BREAK_GLASS,
        "proposal_id": None,
        "second": OMAR,
        "ends_at": NOW + timedelta(hours=4),
    }
    return activation(number, **(members | changes))
