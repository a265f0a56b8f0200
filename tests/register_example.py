"""Links, consents and kill switches, for tests of the register."""

from datetime import UTC, datetime
from typing import Any

from bridge.model import KillScope, KillSwitch
from bridge.register import Consent, ConsentMode, Link, LinkMethod, LinkState, ProjectRef

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
GITLAB = "https://gitlab.realm.test"


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
