"""What people have settled about who may act as whom: links, consents, kill switches and the policy in force.

The register is small, changes at human speed, and decides who runs as whom; so every change of it is sealed by the
broker (``bridge.sealed``), and what was not sealed counts for nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from bridge.access import FIRST_EPOCH, ApiToken, SessionEpoch
from bridge.model import KillSwitch
from bridge.proposals import Activation, Proposal

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
    proposals: tuple[Proposal, ...] = ()
    """All that ever were, oldest first."""
    activations: tuple[Activation, ...] = ()
    """By number."""
    api_tokens: tuple[ApiToken, ...] = ()
    """All that ever were, oldest first."""
    session_epochs: tuple[SessionEpoch, ...] = ()
    """By principal."""

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
    def _proposals_by_id(self) -> Mapping[str, Proposal]:
        return {one.proposal_id: one for one in self.proposals}

    @cached_property
    def _api_tokens_by_hash(self) -> Mapping[str, ApiToken]:
        return {one.secret_hash: one for one in self.api_tokens}

    @cached_property
    def _epochs_by_principal(self) -> Mapping[str, int]:
        return {one.principal: one.epoch for one in self.session_epochs}

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

    def proposal(self, proposal_id: str) -> Proposal | None:
        """The proposal of that id, whatever its state."""
        return self._proposals_by_id.get(proposal_id)

    def api_token(self, secret_hash: str) -> ApiToken | None:
        """The API token of that hash, whether it is in force or not."""
        return self._api_tokens_by_hash.get(secret_hash)

    def session_epoch(self, principal: str) -> int:
        """The epoch that the principal's sessions must be of."""
        return self._epochs_by_principal.get(principal, FIRST_EPOCH)

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


Row = Link | Consent | KillSwitch | Proposal | Activation | ApiToken | SessionEpoch

Edit = Row | Lifting
"""One change of the register: a row that was put or thrown, or a kill switch that was lifted."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of row of the register."""

    rows: str
    """The member of ``Register`` that has them."""
    key: Callable[[Any], Any]
    """What a row is known by: one that is put replaces the one of the same key."""
    order: Callable[[Any], Any]
    """What they are sorted by."""
    from_the_start: bool = False
    """Whether the first seals covered it. Others are under the seal from their first row on, and where there is none
    the seal is as it was before there were any of the kind."""


KINDS: Final[Mapping[type, Kind]] = MappingProxyType(
    {
        Link: Kind("links", lambda one: one.link_id, lambda one: one.link_id, from_the_start=True),
        Consent: Kind("consents", lambda one: one.account, lambda one: one.account, from_the_start=True),
        KillSwitch: Kind(
            "switches", lambda one: one.switch_id, lambda one: (one.created_at, one.switch_id), from_the_start=True
        ),
        Proposal: Kind("proposals", lambda one: one.proposal_id, lambda one: (one.created_at, one.proposal_id)),
        Activation: Kind("activations", lambda one: one.number, lambda one: one.number),
        ApiToken: Kind("api_tokens", lambda one: one.token_id, lambda one: (one.created_at, one.token_id)),
        SessionEpoch: Kind("session_epochs", lambda one: one.principal, lambda one: one.principal),
    }
)
"""Every kind of row, in the order in which the seal covers them. To add one: a frozen dataclass whose first field is
its key; a member of ``Register``, ``Row`` and here, at the end; its table; its rows in ``db.register.RegisterViews``;
and a ``Tx.put_...`` that appends what was put to the transaction's edits. The seal then covers every field of it."""


def edited(before: Register, edits: Iterable[Edit]) -> Register:
    """Return the next revision of the register: ``before`` after ``edits``, in their order.

    Raises KeyError for the lifting of a switch that ``before`` does not have.
    """
    tables: dict[type, dict[Any, Any]] = {
        of: {kind.key(row): row for row in getattr(before, kind.rows)} for of, kind in KINDS.items()
    }
    for edit in edits:
        if isinstance(edit, Lifting):
            thrown = tables[KillSwitch]
            thrown[edit.switch_id] = replace(thrown[edit.switch_id], lifted_at=edit.lifted_at, lifted_by=edit.lifted_by)
        else:
            tables[type(edit)][KINDS[type(edit)].key(edit)] = edit
    return _of_tables(before.revision + 1, {of: rows.values() for of, rows in tables.items()})


def ordered(revision: int, rows: Iterable[Row]) -> Register:
    """Return the register of these rows in the order that ``Register`` has them in, whatever order they come in."""
    tables: dict[type, list[Row]] = {of: [] for of in KINDS}
    for row in rows:
        tables[type(row)].append(row)
    return _of_tables(revision, tables)


def _of_tables(revision: int, tables: Mapping[type, Iterable[Any]]) -> Register:
    return Register(revision, **{kind.rows: tuple(sorted(tables[of], key=kind.order)) for of, kind in KINDS.items()})
