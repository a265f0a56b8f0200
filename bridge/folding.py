"""Keeps a flood of refusals out of the audit log: the first ones of a kind each have a record, then one a minute.

Each record says how many before it had none, so that nothing is hidden but the moment (T38, T43).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bridge.buckets import TokenBuckets
from bridge.references import new_reference

FIRST: Final = 10
PER_SECOND: Final = 1 / 60
MOST_KINDS: Final = 10_000


@dataclass(slots=True)
class _Last:
    """The last refusal of a kind that has a record, and how many came after it."""

    reference: str
    folded: int = 0


class Folding:
    """Decides which refusals are recorded. Safe in threads; what a restart forgets is a count."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most_kinds: int = MOST_KINDS) -> None:
        self._buckets = TokenBuckets(FIRST, PER_SECOND, clock=clock, most_names=most_kinds)
        self._most = most_kinds
        self._lock = threading.Lock()
        self._last: OrderedDict[str, _Last] = OrderedDict()

    def note(self, kind: str, record: Callable[[str, int], None]) -> str:
        """Return the reference under which the log has a refusal of this kind, calling ``record`` if it gets its own.

        ``record`` is given the new reference and how many refusals of the kind had no record since the last; it may
        raise. One that has no record of its own goes by the reference of the last that has.
        """
        with self._lock:
            last = self._last.get(kind)
            if last is not None and not self._buckets.take(kind):
                last.folded += 1
                return last.reference
            if last is None:
                self._buckets.take(kind)
            reference, folded = new_reference(), 0 if last is None else last.folded
            self._last[kind] = _Last(reference)
            self._last.move_to_end(kind)
            if len(self._last) > self._most:
                self._last.popitem(last=False)
        record(reference, folded)
        return reference
