"""The owner's say about their own account: which projects' jobs may run as it. Runs in the broker.

It can only make less of what policy allows, or, where the site asks owners first, be what policy waits for. Whoever
shows a ticket of the account is its owner.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bridge.audit.record import RecordType, Target
from bridge.errors import RequestRefused
from bridge.people.acts import Acts, act_record
from bridge.people.callers import Caller
from bridge.policy.accounts import AccountRules
from bridge.policy.directory import Directory
from bridge.references import new_reference
from bridge.register import Consent, ConsentMode, Link, LinkState, ProjectRef
from bridge.sealed import SealedRegister

MAX_PROJECTS: Final = 1000
"""That one owner can name."""


class ConsentAct(enum.StrEnum):
    """What an owner can say."""

    ALLOW = "allow"
    """This project may act as me."""
    DENY = "deny"
    """This project may not."""
    ONLY_LISTED = "only-listed"
    """Nobody but the projects that I allowed."""
    STOP = "stop"
    """Nobody."""
    RESUME = "resume"
    """As before the stop."""
    UNLIST = "unlist"
    """Again as the site's rule is, less what I denied."""


_STOPPED: Final = {ConsentMode.SITE: ConsentMode.STOPPED, ConsentMode.LISTED: ConsentMode.LISTED_STOPPED}
_RESUMED: Final = {stopped: before for before, stopped in _STOPPED.items()}
_MODES: Final = {
    ConsentAct.ONLY_LISTED: dict.fromkeys(_STOPPED, ConsentMode.LISTED)
    | dict.fromkeys(_RESUMED, ConsentMode.LISTED_STOPPED),
    ConsentAct.UNLIST: dict.fromkeys(_STOPPED, ConsentMode.SITE) | dict.fromkeys(_RESUMED, ConsentMode.STOPPED),
    ConsentAct.STOP: _STOPPED,
    ConsentAct.RESUME: _RESUMED,
}
"""What each act makes of a mode; one that is not there stays."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is settled about an account, for its owner to see."""

    account: str
    uid: int
    consent: Consent | None
    ask_first: bool
    """Whether, by the site's rule, a project must be allowed first."""
    links: tuple[Link, ...]
    """GitLab users who become this account, by links in force."""
    rows: tuple[tuple[str, int], ...]
    """(issuer, user id) of those who do by a row of ``accounts.toml``."""


@dataclass(frozen=True, slots=True)
class ConsentDesk:
    """Shows and changes consents; every part is passed in."""

    register: SealedRegister
    acts: Acts
    rules: Callable[[], AccountRules]
    directory: Directory
    issuers: frozenset[str]
    clock: Callable[[], datetime]

    def show(self, caller: Caller) -> Standing:
        """Return how the caller's own account stands; raises PolicyRefused, Outage."""
        account = self.directory.lookup(caller.require_account())
        register, rules = self.register.read(), self.rules()
        return Standing(
            account=account.name,
            uid=account.uid,
            consent=register.consent(account.name, account.uid),
            ask_first=rules.ask_first,
            links=tuple(one for one in register.links if one.state is LinkState.ACTIVE and one.account == account.name),
            rows=tuple(key for key, row in rules.rows.items() if row.account == account.name),
        )

    def change(self, caller: Caller, act: ConsentAct, project: ProjectRef | None) -> Consent:
        """Take down what the owner says; ALLOW and DENY name a project, the others none. Raises BridgeError."""
        with self.acts.refusals(RecordType.CONSENT, act.value, caller.principal):
            account = self.directory.lookup(caller.require_account())
            self._require_project(act, project)
            with self.register.begin() as (tx, register):
                before = register.consent(account.name, account.uid)
                consent = self._changed(before or self._unsaid(account.name, account.uid), act, project)
                consent = dataclasses.replace(consent, changed_by=caller.principal, changed_at=self.clock())
                tx.put_consent(consent)
                facts: dict[str, str | int | bool] = {"mode": consent.mode.value, **caller.proof}
                if project is not None:
                    facts |= {"issuer": project.issuer, "project_id": project.project_id}
                target = Target(account=account.name, uid=account.uid)
                tx.append(act_record(RecordType.CONSENT, act.value, caller.principal, new_reference(), facts, target))
            return consent

    def _require_project(self, act: ConsentAct, project: ProjectRef | None) -> None:
        if (project is None) != (act in _MODES) or (project is not None and project.issuer not in self.issuers):
            raise RequestRefused(
                "consent.project",
                "Which project is meant is not clear.",
                "Name a project by its number, and the GitLab where the bridge knows several.",
            )

    def _unsaid(self, account: str, uid: int) -> Consent:
        return Consent(account, uid, ConsentMode.SITE, (), (), "", self.clock())

    @staticmethod
    def _changed(consent: Consent, act: ConsentAct, project: ProjectRef | None) -> Consent:
        if project is None:
            return dataclasses.replace(consent, mode=_MODES[act].get(consent.mode, consent.mode))
        allowed, denied = set(consent.allowed) - {project}, set(consent.denied) - {project}
        (allowed if act is ConsentAct.ALLOW else denied).add(project)
        if len(allowed) + len(denied) > MAX_PROJECTS:
            raise RequestRefused(
                "consent.too_many",
                f"More than {MAX_PROJECTS} projects can't be named.",
                "Allow only those that need it with 'ci-bridge consent only-listed'.",
            )
        return dataclasses.replace(consent, allowed=tuple(sorted(allowed)), denied=tuple(sorted(denied)))
