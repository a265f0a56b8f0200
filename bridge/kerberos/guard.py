"""The second look at an account, after policy's: right before the KDC is asked, with what the directory says now.

It shares nothing with policy but the name service, and takes its bounds from the broker's own settings: a wrong row, a
wrong rule or a mistake in the code above does not get anybody tickets of root or of a service account (T18).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bridge.errors import Defect, PolicyRefused
from bridge.kerberos.targets import account_denied
from bridge.model import PosixAccount


class Accounts(Protocol):
    """Knows the accounts of the cluster as they are at this moment."""

    def lookup(self, name: str) -> PosixAccount:
        """Give the account with all its groups; raises PolicyRefused for one that is unknown, Outage for no answer."""
        ...


class Guard(Protocol):
    """Stands between a well-formed account name and the KDC."""

    def require_ordinary(self, account: str, uid: int) -> None:
        """Return for an ordinary person's account that has this uid still.

        ``uid`` is what the decision was made for. Raises PolicyRefused, or Outage where that can't be found out.
        """
        ...


@dataclass(frozen=True, slots=True)
class AccountGuard:
    """Guard over a directory: the uid as decided and over the floor, no denied user or group, no group of root's."""

    accounts: Accounts
    uid_floor: int
    denied_users: frozenset[str]
    denied_groups: frozenset[str]

    def __post_init__(self) -> None:
        """Raise Defect for a floor that lets root through."""
        if self.uid_floor < 1:
            raise Defect(
                "kerberos.guard_open",
                "The lowest uid that jobs may run under would include root's.",
                "Set broker.uid_floor to the first uid of people's accounts.",
                uid_floor=self.uid_floor,
            )

    def require_ordinary(self, account: str, uid: int) -> None:
        """See Guard. Raises PolicyRefused ``kerberos.account_denied``, ``kerberos.uid_changed``; Outage as it comes."""
        found = self.accounts.lookup(account)
        denied = sorted(self.denied_groups.intersection(found.groups))
        why = {
            # A directory that folds case or realms would give somebody else's groups for this name.
            "the directory gave another account": found.name != account,
            f"its uid is below {self.uid_floor}": found.uid < self.uid_floor,
            "its group is root's": found.gid == 0,
            "it is on the broker's list of denied users": account in self.denied_users,
            f"it is in the denied group {''.join(denied[:1])}": bool(denied),
        }
        reasons = [text for text, broken in why.items() if broken]
        if reasons:
            raise account_denied(account, "; ".join(reasons))
        if found.uid != uid:
            raise _uid_changed(account, uid, found.uid)


def _uid_changed(account: str, decided: int, found: int) -> PolicyRefused:
    """A run can be older than its account: the name may be somebody else's by now, and tickets go by names (T11)."""
    return PolicyRefused(
        "kerberos.uid_changed",
        f"The account {account} is no longer the one that this job was admitted for: its uid has changed.",
        "Ask the cluster's administrators who owns the account now; do not run the job again before.",
        account=account,
        decided_uid=decided,
        uid=found,
    )
