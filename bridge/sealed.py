"""The register under the broker's seal: whoever can write the database can break it, and can not change it.

A link lets somebody become an account, and a lifted kill switch lets them go on; web can write the tables of both. So
the head of the register carries an HMAC over all its rows, made by the broker alone, and the head that was seen last
is kept where only the broker writes, so that an older database is noticed too.

What is sealed is never what the tables say after a change, since a trigger, or somebody who was quicker, may have
added to them; it is what this process knew before and what it changed, both from its own memory. The tables must say
the same, or the change does not happen.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

from bridge.audit.ledger import Ledger, Tx, View
from bridge.errors import Defect
from bridge.register import FIRST_REVISION, KINDS, Edit, ProjectRef, Register, RegisterHead, edited, ordered
from bridge.seal import Seal
from bridge.sealmark import RevisionMark, rolled_back

__all__ = ["RevisionMark", "SealedRegister", "digest"]

_LABEL: Final = "register"


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    """A register whose seal was good, or was made here."""

    head: RegisterHead
    register: Register


class SealedRegister:
    """Reads and changes the register in the broker; safe to use from many threads."""

    def __init__(self, ledger: Ledger, seal: Seal, mark: RevisionMark) -> None:
        self._ledger = ledger
        self._seal = seal
        self._mark = mark
        self._lock = threading.Lock()
        self._known: _Checked | None = None
        """The newest that is durable."""
        self._open: WeakKeyDictionary[View, _Checked] = WeakKeyDictionary()
        """What transactions have sealed that may yet fail."""

    def current(self, view: View) -> Register:
        """Return the register as ``view`` has it, or a newer one where it has been changed since the view was opened.

        Raises Defect ``register.broken`` or ``register.rolled_back``, and Outage where the mark can't be written. What
        was checked once is kept in memory by its head, so that this costs one small query; rows that are changed
        behind a head that stays are never looked at.
        """
        head = view.register_head()
        known, ours = self._known, self._open.get(view)
        if ours is not None:
            return _same(ours, head)
        if known is not None and known.head == head:
            return known.register
        newest = self._mark.revision
        if head.revision >= newest:
            return self._taken(head, view)
        # The view may have been opened before the newest change; one that is opened now has no such excuse.
        with self._ledger.read() as fresh:
            head = fresh.register_head()
            if head.revision < newest:
                raise rolled_back(head.revision, newest)
            return self._taken(head, fresh)

    @contextmanager
    def change(self, tx: Tx) -> Iterator[Register]:
        """Let the block change the register by ``tx``, and seal what came of it.

        Yields the register before. Raises what ``current`` does, also where the tables are not what they should be
        after the change; the caller must then let the transaction fail.
        """
        before, done = self._before(tx), len(tx.edits())
        yield before
        try:
            self._seal_edits(tx, before, tx.edits()[done:])
        except Exception:
            # Trust memory no longer: where nobody can throw a kill switch, nobody may be let in either.
            with self._lock:
                self._known = None
            raise

    @contextmanager
    def begin(self) -> Iterator[tuple[Tx, Register]]:
        """Open a writing transaction that changes the register; all of it is durable and sealed, or nothing."""
        with self._ledger.begin() as tx, self.change(tx) as register:
            yield tx, register

    @contextmanager
    def adopt(self) -> Iterator[tuple[Tx, Register]]:
        """Seal what the tables say, whatever seal they had; yields the register as it will be, for its record.

        Raises Defect ``register.broken`` for rows that no bridge can have written, and ``register.rolled_back`` where
        this broker has seen a newer one: its mark must be taken away first.
        """
        with self._ledger.begin() as tx:
            head = tx.register_head()
            if head.revision < self._mark.revision:
                raise rolled_back(head.revision, self._mark.revision)
            register = dataclasses.replace(tx.register(), revision=head.revision + 1)
            checked = _Checked(RegisterHead(register.revision, self._sealed(register)), register)
            tx.set_register_head(checked.head)
            tx.after_commit(partial(self._committed, checked))
            yield tx, register

    def read(self) -> Register:
        """Return the register as it is now."""
        with self._ledger.read() as view:
            return self.current(view)

    def _before(self, tx: Tx) -> Register:
        """Return what ``tx`` builds upon; as nobody else of ours writes now, nothing but the newest will do."""
        head = tx.register_head()
        ours = self._open.get(tx)
        if ours is not None:
            return _same(ours, head)
        newest = self._mark.revision
        if head.revision < newest:
            raise rolled_back(head.revision, newest)
        return self._taken(head, tx)

    def _seal_edits(self, tx: Tx, before: Register, edits: Sequence[Edit]) -> None:
        try:
            after = edited(before, edits)
        except KeyError as error:
            raise _broken(before.revision) from error
        checked = _Checked(RegisterHead(after.revision, self._sealed(after)), after)
        tx.set_register_head(checked.head)
        if tx.register_head() != checked.head or tx.register() != after:
            raise _broken(after.revision)
        with self._lock:
            self._open[tx] = checked
        tx.after_commit(partial(self._committed, checked))

    def _taken(self, head: RegisterHead, view: View) -> Register:
        """Return what is known of ``head`` or newer; read, check and keep it where nothing is."""
        with self._lock:
            known = self._known
            if known is not None and (known.head == head or head.revision < known.head.revision):
                return known.register
            register = self._checked(head, view.register())
            self._mark.reach(head)
            self._known = _Checked(head, register)
            return register

    def _checked(self, head: RegisterHead, register: Register) -> Register:
        register = dataclasses.replace(register, revision=head.revision)
        if head.revision == FIRST_REVISION:
            # Without a seal nothing counts that would let anybody in; kill switches only keep people out.
            if register != ordered(FIRST_REVISION, register.switches) or head.seal:
                raise _broken(head.revision)
            return register
        if not self._seal.equal(head.seal, self._sealed(register)):
            raise _broken(head.revision)
        return register

    def _sealed(self, register: Register) -> bytes:
        return self._seal.make(_LABEL, str(register.revision), digest(register))

    def _committed(self, checked: _Checked) -> None:
        """Take down at once what this process has made durable: who puts the older one back now is noticed."""
        with self._lock:
            if self._known is None or self._known.head.revision < checked.head.revision:
                self._known = checked
            # Another broker may have been quicker with the next one, and a reader may have noticed it.
            if checked.head.revision > self._mark.revision:
                self._mark.reach(checked.head)


def _same(ours: _Checked, head: RegisterHead) -> Register:
    if head != ours.head:
        raise _broken(ours.head.revision)
    return ours.register


def digest(register: Register) -> bytes:
    """Return the SHA-256 over all rows of the register in canonical form, whatever order they are given in.

    The form is JSON: of each table the names of its fields, and its rows by their first field, which is their id. A
    kind of rows that earlier releases did not have is left out as long as there are none of it.
    """
    tables = [
        _table(of, getattr(register, kind.rows))
        for of, kind in KINDS.items()
        if kind.from_the_start or getattr(register, kind.rows)
    ]
    return hashlib.sha256(json.dumps(tables, default=_plain, separators=(",", ":")).encode()).digest()


def _table(kind: type, rows: Sequence[Any]) -> tuple[Any, ...]:
    names = [one.name for one in dataclasses.fields(kind)]
    return names, sorted(map(attrgetter(*names), rows), key=itemgetter(0))


def _plain(value: object) -> Any:
    match value:
        case datetime():
            # The tables keep the moment and not its zone.
            return value.astimezone(UTC).isoformat()
        case ProjectRef(issuer, project_id):
            return issuer, project_id
    raise TypeError(type(value))


def _broken(revision: int) -> Defect:
    return Defect(
        "register.broken",
        "What the database says of links, consents, kill switches and policy is not what the broker has sealed.",
        "Stop the bridge and look for who changed the database; then report the reference.",
        revision=revision,
    )
