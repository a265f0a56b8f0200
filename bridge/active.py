"""The policy that is in force now, on every replica from the moment of its activation.

It is what the register says; as long as nobody has activated anything it is the directory that the settings name. An
emergency's bundle decides jobs as any other does; who may change policy stays with the bundle beneath it, so that two
operators can not make themselves authors and approvers with it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from bridge.audit.ledger import Ledger, Tx, View
from bridge.audit.record import Basis, Phase, Record, RecordType
from bridge.errors import BridgeError, Defect, NotFound
from bridge.model import Cluster
from bridge.policy.accounts import AccountRules
from bridge.policy.bundle import checked_bundle, load_bundle
from bridge.policy.engine import Engine
from bridge.policy.explain import Explainer
from bridge.policy.files import content_hash
from bridge.policy.roles import Roles
from bridge.proposals import NUMBER_OF_NONE, Activation, approved, in_force
from bridge.references import new_reference
from bridge.sealed import SealedRegister

KEPT: Final = 4
"""Engines that are kept ready: the one in force, and those before and after it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InForce:
    """A bundle that is in force, and why."""

    engine: Engine
    number: int
    """Of its activation; 0 where the directory of the settings is in force still."""
    emergency_until: datetime | None = None
    """Of a bundle that two operators put in force without an approval."""

    @property
    def content_hash(self) -> str:
        """Hex SHA-256 of the bundle."""
        return self.engine.bundle.content_hash


class ActivePolicy:
    """Knows the bundle in force; safe to use from many threads."""

    def __init__(
        self, directory: Path, register: SealedRegister, ledger: Ledger, clock: Callable[[], datetime]
    ) -> None:
        """Raises RequestRefused ``policy.invalid`` where the directory holds no good bundle."""
        self._directory = directory
        self._register = register
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._first = Engine(load_bundle(directory))
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._explainers: OrderedDict[str, Explainer] = OrderedDict()
        self._latest = clock()
        self._announced: set[int] = set()

    def current(self, view: View) -> InForce:
        """The bundle that decides jobs in ``view`` at this moment; raises Defect where it can't be had."""
        return self._of(view, self._activation(view))

    def base(self, view: View) -> InForce:
        """The bundle that was approved last: who may do what, and what a proposal is put on top of."""
        return self._of(view, approved(self._register.current(view).activations))

    def content_hash(self, view: View) -> str:
        """The hash of the bundle that decides jobs in ``view`` at this moment."""
        activation = self._activation(view)
        return self._first.bundle.content_hash if activation is None else activation.content_hash

    def latest(self, view: View) -> datetime:
        """The latest moment that is known to have been: by this process's clock, or on record.

        A clock that is set back, or a restart with one that was, must not bring an emergency to life again.
        """
        newest = next(iter(view.entries(view.head().tree.size - 2)), None)
        recorded = _EPOCH if newest is None else _EPOCH + timedelta(milliseconds=newest.index.ts)
        return max(self._latest, recorded)

    def engine(self, view: View, wanted: str) -> Engine:
        """The engine of a bundle that is kept, or is the directory's; raises BridgeError where there is none."""
        first = self._first
        if wanted == first.bundle.content_hash:
            return first
        with self._lock:
            known = self._engines.get(wanted)
            if known is not None:
                self._engines.move_to_end(wanted)
                return known
        engine = Engine(checked_bundle(self.files(view, wanted)))
        with self._lock:
            self._engines[wanted] = engine
            while len(self._engines) > KEPT:
                self._engines.popitem(last=False)
        return engine

    def explainer(self, policy: InForce) -> Explainer:
        """What explains the answers of a bundle; made at its first refusal, and kept as engines are."""
        wanted = policy.content_hash
        with self._lock:
            known = self._explainers.get(wanted)
        if known is not None:
            return known
        made = Explainer(policy.engine.bundle)
        with self._lock:
            self._explainers[wanted] = made
            while len(self._explainers) > KEPT:
                self._explainers.popitem(last=False)
        return made

    def files(self, view: View, wanted: str) -> Mapping[str, str]:
        """The files of a bundle that is kept, or is the directory's, hashed again.

        Raises NotFound ``policy.no_bundle``, Defect ``policy.content``.
        """
        first = self._first.bundle
        return first.files if wanted == first.content_hash else self._kept(view, wanted)

    def now(self) -> InForce:
        """The bundle in force, outside of any transaction; raises Outage ``db.*``."""
        with self._ledger.read() as view:
            return self.current(view)

    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters of the bundle in force."""
        return tuple(self.now().engine.bundle.clusters.by_name.values())

    def account_rules(self) -> AccountRules:
        """The rules about accounts of the bundle in force."""
        return self.now().engine.bundle.accounts

    def roles(self) -> Roles:
        """Who may do what, by the bundle that was approved last."""
        with self._ledger.read() as view:
            return self.base(view).engine.bundle.roles

    def reload(self) -> None:
        """Read the directory again; it counts where nothing was activated. A bad one changes nothing."""
        try:
            self._first = Engine(load_bundle(self._directory))
            log.info("policy.reloaded", bundle=self._first.bundle.content_hash)
        except BridgeError as error:
            log.warning("policy.kept", code=error.code, title=error.title)

    def note_use(self, tx: Tx, policy: InForce) -> None:
        """Be loud about the first job that an emergency's bundle decides here; in the transaction of its record."""
        until = policy.emergency_until
        if until is None or policy.number in self._announced:
            return
        detail: dict[str, str | int | bool] = {
            "act": "first job under an emergency policy",
            "number": policy.number,
            "ends_at": until.isoformat(timespec="seconds"),
        }
        basis = Basis(policy.content_hash)
        tx.append(Record(RecordType.POLICY, Phase.EVENT, new_reference(), basis=basis, detail=detail))

        def announce() -> None:
            self._announced.add(policy.number)
            log.warning("policy.emergency", bundle=policy.content_hash, number=policy.number, until=until.isoformat())

        tx.after_commit(announce)

    def _activation(self, view: View) -> Activation | None:
        activations, now = self._register.current(view).activations, self._clock()
        self._latest = max(self._latest, now)
        newest = in_force(activations, now, self._latest)
        if newest is None or not newest.is_emergency:
            return newest
        return in_force(activations, now, self.latest(view))

    def _of(self, view: View, activation: Activation | None) -> InForce:
        if activation is None:
            return InForce(self._first, NUMBER_OF_NONE)
        return InForce(self.engine(view, activation.content_hash), activation.number, activation.ends_at)

    def _kept(self, view: View, wanted: str) -> Mapping[str, str]:
        try:
            files = view.bundle_files(wanted)
        except NotFound:
            # The register may be newer than the view, see SealedRegister.current.
            with self._ledger.read() as fresh:
                files = fresh.bundle_files(wanted)
        return _checked(files, wanted)


def _checked(files: Mapping[str, str], wanted: str) -> Mapping[str, str]:
    found = content_hash(files)
    if found != wanted:
        raise Defect(
            "policy.content",
            "The files that the database has of a policy bundle are not those of its hash.",
            "Stop the bridge and look for who changed the database; then report the reference.",
            wanted=wanted,
            found=found,
        )
    return files
