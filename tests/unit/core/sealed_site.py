"""A database, brokers on it, and somebody who can write its file, for tests of the seal on the register."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.proposals import ProposalState
from bridge.register import LinkState
from bridge.seal import Seal
from bridge.sealed import SealedRegister
from bridge.sealmark import RevisionMark
from tests.migrated import open_migrated
from tests.register_example import (
    ADA,
    CONTENT,
    NOW,
    activation,
    admin_link,
    broken_glass,
    consent,
    link,
    proposal,
    switch,
)

KEY = bytes(range(32))


REVOKED = link("LINK-0000-0002", 102, account="bob", state=LinkState.REVOKED, ended_by="bob@REALM.TEST", ended_at=NOW)


PROPOSED = admin_link("LINK-0000-0003", 103, state=LinkState.PROPOSED, decided_by=None, decided_at=None)


EVIL = "e" * 64


UNDECIDED: dict[str, Any] = {"state": ProposalState.SUBMITTED, "decided_by": None, "decided_at": None, "reason": ""}


ACTIVATED = proposal("PROP-0000-0003", state=ProposalState.ACTIVATED, activated_by="olga@REALM.TEST")


BEFORE = 3
"""The revision that is attacked."""


SEAL_HEAD = "UPDATE register_head SET revision = :revision, seal = :seal"


class Site:
    """A database, and the brokers on it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bridge.db"
        self._directory = directory
        self._engines = [open_migrated(f"sqlite:///{self.path}")]

    def broker(self, name: str = "a", key: bytes = KEY) -> SealedRegister:
        """Start a broker of that name, or start it again: it knows its key and its mark, and nothing else."""
        engine = open_database(f"sqlite:///{self.path}")
        self._engines.append(engine)
        ledger = SqlLedger(engine, Writer.new(f"broker-{name}"), lambda: NOW)
        return SealedRegister(ledger, Seal(key), RevisionMark(self.mark(name)))

    def mark(self, name: str = "a") -> Path:
        """The broker's mark file."""
        return self._directory / f"{name}.mark"

    def attack(self, *statements: str, **values: object) -> None:
        """Do as whoever can write the database's file likes."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                connection.execute(statement, values)

    def copied(self) -> Callable[[], None]:
        """Take a copy of the database; call what is returned to put it back."""
        copy = self._directory / "copy.db"
        _copy(self.path, copy)
        return partial(_copy, copy, self.path)

    def close(self) -> None:
        """Let go of the database."""
        for engine in self._engines:
            engine.dispose()


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def worked(site: Site) -> SealedRegister:
    """A broker that has worked for a while: an example of everything, in three changes."""
    broker = site.broker()
    with broker.begin() as (tx, _):
        for one in (link(), REVOKED, PROPOSED):
            tx.put_link(one)
    with broker.begin() as (tx, _):
        tx.put_consent(consent())
        tx.kill(switch())
        for bundle in (CONTENT, EVIL):
            tx.keep_bundle(bundle, {}, ADA, NOW)
        for policy in (proposal(), proposal("PROP-0000-0002", **UNDECIDED), ACTIVATED):
            tx.put_proposal(policy)
        tx.put_activation(activation(proposal_id="PROP-0000-0003"))
        tx.put_activation(broken_glass(2, second=None))
    with broker.begin() as (tx, _):
        tx.kill(switch("KILL-0000-0002", 777))
        tx.lift("KILL-0000-0002", "eve@REALM.TEST")
    return broker


def throw(broker: SealedRegister) -> None:
    """Change the register."""
    with broker.begin() as (tx, _):
        tx.kill(switch("KILL-0000-0003", 888))


def put_both(tx: Any) -> None:
    """Throw a switch and make a link."""
    tx.kill(switch("KILL-0000-0003", 888))
    tx.put_link(link("LINK-0000-0009", 109))
