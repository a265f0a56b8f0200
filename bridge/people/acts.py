"""What people do to the register is recorded in the transaction that does it; what they may not do is recorded too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bridge.audit.ledger import Ledger
from bridge.audit.record import Phase, Record, RecordType, Target
from bridge.errors import BridgeError, Defect, Refused
from bridge.references import new_reference

Facts = dict[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Acts:
    """Writes down what callers did, and were refused."""

    ledger: Ledger

    @contextmanager
    def refusals(self, kind: RecordType, act: str, by: str) -> Iterator[None]:
        """Put a refusal of the block on record, and give it the reference; an outage is nobody's act."""
        try:
            yield
        except (Refused, Defect) as error:
            reference = new_reference()
            with self.ledger.begin() as tx:
                tx.append(
                    Record(
                        type=kind,
                        phase=Phase.DENIED,
                        reference=reference,
                        code=error.code,
                        detail={"act": act, "by": by, **_context(error)},
                    )
                )
            raise error.referenced(reference) from error


def act_record(
    kind: RecordType, act: str, by: str, reference: str, facts: Facts, target: Target | None = None
) -> Record:
    """The record of something that a caller has done."""
    return Record(type=kind, phase=Phase.OK, reference=reference, target=target, detail={"act": act, "by": by, **facts})


def _context(error: BridgeError) -> Facts:
    return {
        name: one if isinstance(one, int) else str(one) for name, one in error.context.items() if name != "reference"
    }
