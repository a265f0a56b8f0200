"""What people have settled about who may act as whom: links, consents and kill switches, as the register holds them.

The register is small, changes at human speed, and decides who runs as whom; so every change of it is sealed by the
broker (``bridge.sealed``), and what was not sealed counts for nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from bridge.model import KillSwitch

FIRST_REVISION: Final = 0
"""Of a register that nobody has changed yet, and that therefore has no seal."""


class LinkMethod(enum.StrEnum):
    """How it was shown that a GitLab user and an account are the same person's."""

    SELF_SERVICE = "self_service"
    """The person authenticated with Kerberos and with GitLab in one flow."""
    ADMIN = "admin"
    """An administrator proposed it, and another one approved."""
    PROVIDER = "provider"
    """GitLab signed the person's login at an LDAP or SAML provider that policy trusts; pinned at first use."""


class LinkState(enum.StrEnum):
    """``PROPOSED -> ACTIVE | REJECTED``, ``ACTIVE -> REVOKED``."""

    PROPOSED = "proposed"
    ACTIVE = "active"
    REJECTED = "rejected"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Link:
    """(issuer, user_id) -> account with pinned uid."""

    link_id: str
    """Also the reference of its audit records: ``7F3K-9QXM-2DTB``."""
    issuer: str
    user_id: int
    user_login: str
    """As GitLab showed it then; for people to read."""
    account: str
    uid: int
    method: LinkMethod
    state: LinkState
    proposed_by: str
    """Principal of whoever began it: ``alice@REALM``."""
    proposed_at: datetime
    reason: str = ""
    decided_by: str | None = None
    """Who approved or rejected it; the same as ``proposed_by`` where the person linked themselves."""
    decided_at: datetime | None = None
    ended_by: str | None = None
    ended_at: datetime | None = None


class ConsentMode(enum.StrEnum):
    """Which projects may act as an account, as far as its owner has a say."""

    SITE = "site"
    """As ``accounts.toml`` says for those who said nothing, less what the owner denied."""
    LISTED = "listed"
    """Those only that the owner allowed."""
    STOPPED = "stopped"
    """None; before that it was SITE, and will be again."""
    LISTED_STOPPED = "listed_stopped"
    """None; before that it was LISTED, and will be again."""

    @property
    def stopped(self) -> bool:
        """Whether nobody may act as the account."""
        return self in (ConsentMode.STOPPED, ConsentMode.LISTED_STOPPED)


@dataclass(frozen=True, slots=True, order=True)
class ProjectRef:
    """A GitLab project by its number."""

    issuer: str
    project_id: int


@dataclass(frozen=True, slots=True)
class Consent:
    """What the owner of an account has said."""

    account: str
    uid: int
    """Of the owner; a later owner of the same name is not bound by it."""
    mode: ConsentMode
    allowed: tuple[ProjectRef, ...]
    denied: tuple[ProjectRef, ...]
    changed_by: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class RegisterHead:
    """Which state of the register is the newest, and the broker's seal on it."""

    revision: int
    """Counted up by one with every change."""
    seal: bytes


@dataclass(frozen=True)
class Register:
    """The register at one revision."""

    revision: int
    links: tuple[Link, ...] = ()
    """All that ever were, by id."""
    consents: tuple[Consent, ...] = ()
    switches: tuple[KillSwitch, ...] = ()
    """All that ever were, oldest first."""

    @cached_property
    def _links_by_user(self) -> Mapping[tuple[str, int], Link]:
        return {(one.issuer, one.user_id): one for one in self.links if one.state is LinkState.ACTIVE}

    @cached_property
    def _links_by_id(self) -> Mapping[str, Link]:
        return {one.link_id: one for one in self.links}

    @cached_property
    def _consents_by_account(self) -> Mapping[str, Consent]:
        return {one.account: one for one in self.consents}

    @cached_property
    def switches_in_force(self) -> Sequence[KillSwitch]:
        """The kill switches that nobody has lifted, oldest first."""
        return tuple(one for one in self.switches if one.lifted_at is None)

    def active_link(self, issuer: str, user_id: int) -> Link | None:
        """The link of a GitLab user that is in force."""
        return self._links_by_user.get((issuer, user_id))

    def link(self, link_id: str) -> Link | None:
        """The link of that id, whatever its state."""
        return self._links_by_id.get(link_id)

    def consent(self, account: str, uid: int) -> Consent | None:
        """What the owner of the account has said; None also where it was said by an earlier owner of the name."""
        found = self._consents_by_account.get(account)
        return found if found is not None and found.uid == uid else None


@dataclass(frozen=True, slots=True)
class Lifting:
    """A kill switch was lifted."""

    switch_id: str
    lifted_at: datetime
    lifted_by: str


Edit = Link | Consent | KillSwitch | Lifting
"""One change of the register: a link or consent that was put, a kill switch that was thrown, or one that was lifted."""


def edited(before: Register, edits: Iterable[Edit]) -> Register:
    """Return the next revision of the register: ``before`` after ``edits``, in their order.

    Raises KeyError for the lifting of a switch that ``before`` does not have.
    """
    links = {one.link_id: one for one in before.links}
    consents = {one.account: one for one in before.consents}
    switches = {one.switch_id: one for one in before.switches}
    for edit in edits:
        match edit:
            case Link():
                links[edit.link_id] = edit
            case Consent():
                consents[edit.account] = edit
            case KillSwitch():
                switches[edit.switch_id] = edit
            case Lifting(switch_id, at, by):
                switches[switch_id] = replace(switches[switch_id], lifted_at=at, lifted_by=by)
    return ordered(before.revision + 1, links.values(), consents.values(), switches.values())


def ordered(
    revision: int, links: Iterable[Link], consents: Iterable[Consent], switches: Iterable[KillSwitch]
) -> Register:
    """Return the register of these rows in the order that ``Register`` has them in, whatever order they come in."""
    return Register(
        revision,
        tuple(sorted(links, key=lambda one: one.link_id)),
        tuple(sorted(consents, key=lambda one: one.account)),
        tuple(sorted(switches, key=lambda one: (one.created_at, one.switch_id))),
    )
