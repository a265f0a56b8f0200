"""The register's rows and its head in their tables; links are ended, never deleted."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from bridge.db import refusals
from bridge.db.access import AccessViews
from bridge.db.kills import KillViews
from bridge.db.policies import PolicyViews
from bridge.db.schema import account_links, consent_projects, consents, register_head
from bridge.register import (
    FIRST_REVISION,
    Consent,
    ConsentMode,
    Link,
    LinkMethod,
    LinkState,
    ProjectRef,
    Register,
    RegisterHead,
    Row,
    ordered,
)

_HEAD: Final = select(register_head.c.revision, register_head.c.seal).where(register_head.c.id == 1)

_LINK_FIELDS: Final = tuple(one.name for one in dataclasses.fields(Link))
_LINKS: Final = select(*(account_links.c[name] for name in _LINK_FIELDS))
_METHOD, _STATE = _LINK_FIELDS.index("method"), _LINK_FIELDS.index("state")

_TAKEN: Final = ("uq_account_links_active", "account_links.issuer, account_links.user_id")
"""How PostgreSQL and SQLite name the index that was violated."""


class RegisterViews:
    """Reads the register on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def head(self) -> RegisterHead:
        """See ``View.register_head``; a head that is gone reads as that of a register nobody has changed."""
        row = self._connection.execute(_HEAD).one_or_none()
        return RegisterHead(FIRST_REVISION, b"") if row is None else RegisterHead(row.revision, row.seal)

    def register(self) -> Register:
        """See ``View.register``; raises Defect ``register.broken`` for rows that this bridge can't have written."""
        try:
            return ordered(self.head().revision, self._rows())
        except (ValueError, TypeError, OverflowError) as error:
            raise refusals.register_unreadable(error) from error

    def _rows(self) -> Iterator[Row]:
        """Those of every kind, see ``register.KINDS``."""
        policies = PolicyViews(self._connection)
        yield from self._links()
        yield from self._consents()
        yield from KillViews(self._connection).kill_switches(active=False)
        yield from policies.proposals()
        yield from policies.activations()
        access = AccessViews(self._connection)
        yield from access.api_tokens()
        yield from access.session_epochs()

    def _links(self) -> list[Link]:
        return [_link_of(row) for row in self._connection.execute(_LINKS).all()]

    def _consents(self) -> list[Consent]:
        lists = self._lists()
        return [
            Consent(
                account=row.account,
                uid=row.uid,
                mode=ConsentMode(row.mode),
                allowed=tuple(sorted(lists[row.account, True])),
                denied=tuple(sorted(lists[row.account, False])),
                changed_by=row.changed_by,
                changed_at=row.changed_at,
            )
            for row in self._connection.execute(select(consents))
        ]

    def _lists(self) -> Mapping[tuple[str, bool], list[ProjectRef]]:
        lists = defaultdict(list)
        for row in self._connection.execute(select(consent_projects)):
            lists[row.account, bool(row.allowed)].append(ProjectRef(row.issuer, row.project_id))
        return lists


class RegisterChanges:
    """Changes links, consents and the head on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put_link(self, link: Link) -> Link:
        """See ``Tx.put_link``; returns what a reader will find."""
        row = dataclasses.asdict(link)
        try:
            known = self._connection.execute(
                update(account_links).where(account_links.c.link_id == link.link_id).values(row)
            )
            if known.rowcount == 0:
                self._connection.execute(insert(account_links), row)
        except IntegrityError as error:
            if any(name in str(error.orig) for name in _TAKEN):
                raise refusals.link_taken(link) from error
            raise
        return link

    def put_consent(self, consent: Consent) -> Consent:
        """See ``Tx.put_consent``; returns what a reader will find."""
        row = {
            "account": consent.account,
            "uid": consent.uid,
            "mode": consent.mode,
            "changed_by": consent.changed_by,
            "changed_at": consent.changed_at,
        }
        known = self._connection.execute(update(consents).where(consents.c.account == consent.account).values(row))
        if known.rowcount == 0:
            self._connection.execute(insert(consents), row)
        allowed, denied = tuple(sorted(set(consent.allowed))), tuple(sorted(set(consent.denied)))
        self._connection.execute(delete(consent_projects).where(consent_projects.c.account == consent.account))
        listed = _listed(consent.account, allowed, 1) + _listed(consent.account, denied, 0)
        if listed:
            self._connection.execute(insert(consent_projects), listed)
        return dataclasses.replace(consent, allowed=allowed, denied=denied)

    def set_head(self, head: RegisterHead) -> None:
        """See ``Tx.set_register_head``."""
        if head.revision == FIRST_REVISION + 1 and self._connection.execute(_HEAD).one_or_none() is None:
            self._connection.execute(insert(register_head), {"id": 1, "revision": FIRST_REVISION, "seal": b""})
        changed = self._connection.execute(
            update(register_head)
            .where(register_head.c.id == 1, register_head.c.revision == head.revision - 1)
            .values(revision=head.revision, seal=head.seal)
        )
        if changed.rowcount != 1:
            raise refusals.not_next(head.revision)


def _listed(account: str, projects: Iterable[ProjectRef], allowed: int) -> list[dict[str, Any]]:
    return [
        {"account": account, "issuer": one.issuer, "project_id": one.project_id, "allowed": allowed} for one in projects
    ]


def _link_of(row: Sequence[Any]) -> Link:
    """Return the link in a row; by position, as access by name would take most of a large register's time."""
    values = [*row]
    values[_METHOD], values[_STATE] = LinkMethod(values[_METHOD]), LinkState(values[_STATE])
    return Link(*values)
