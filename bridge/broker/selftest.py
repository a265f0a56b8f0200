"""Asks the KDC, before jobs do, what it would let the bridge have: too little stops jobs, too much stops the bridge.

The lists that bound a stolen keytab stand at the KDC, where a slip of the hand is not seen from here. So the broker
tries what must be refused, and is not ready while the KDC would give it (T22), nor while the clocks differ (T25). As
long as the KDC gives too much nobody gets tickets through the bridge either, whoever asks it in spite of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from bridge.audit.ledger import Ledger
from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import BridgeError, Defect, Outage
from bridge.kerberos.probe import Reply
from bridge.references import new_reference

log = structlog.get_logger()

GOOD_SECONDS: Final = 300.0
"""How old a good result may be, and so how long a change at the KDC may go unseen."""
BAD_SECONDS: Final = 30.0
"""How old one may be for which an operator has to do something; each run leaves two records."""
AWAY_SECONDS: Final = 1.0
"""How old one may be for which the KDC could not even be asked."""
MOST_SKEW_SECONDS: Final = 60.0
"""Kerberos itself bears 300 s; tickets of minutes do not."""
FIRST_SECONDS: Final = 10.0
"""How long whoever wants tickets waits for the first result; it covers a KDC that does not answer."""


class Questions(Protocol):
    """What ``kerberos.probe.Probe`` answers; every method raises Outage where the KDC does not."""

    def reach(self, target: str) -> Reply:
        """Whether the bridge may take a ticket of anybody to ``target`` (principal with realm)."""
        ...

    def act_as(self, person: str, target: str) -> Reply:
        """Whether the bridge may get a ticket of ``person`` (principal with realm) for ``target``."""
        ...


@dataclass(frozen=True, slots=True)
class Expectations:
    """What the KDC should say; all are principals with realm."""

    listed: Sequence[str]
    """Services that the bridge must be able to reach: all that any cluster lists."""
    refused_services: Sequence[str]
    """Services that it must not reach, such as krbtgt and one that exists and is on no list."""
    refused_people: Sequence[str]
    """Whom it must not be able to act as, such as root."""
    witness: str | None = None
    """A person in whose name one ticket is got and dropped, where the site has named somebody."""


@dataclass(frozen=True, slots=True)
class _Result:
    good_until: float
    failure: BridgeError | None


class SelfTest:
    """Asks at start and again from time to time, and says whether the broker is ready. Safe in threads."""

    def __init__(
        self,
        ask: Callable[[], AbstractContextManager[Questions]],
        kdc_ahead_seconds: Callable[[], float],
        expectations: Callable[[], Expectations],
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take who asks the KDC, how far its clock is ahead of ours, and what is expected at the moment of a run."""
        self._ask = ask
        self._kdc_ahead_seconds = kdc_ahead_seconds
        self._expectations = expectations
        self._ledger = ledger
        self._clock = clock
        self._running = threading.Lock()
        self._known = threading.Event()
        self._again = threading.Event()
        self._last: _Result | None = None
        self._excess: BridgeError | None = None
        """That the KDC gives too much, until a test has shown that it does not any more."""

    def ready(self) -> None:
        """Return where the last result is good; raises Outage or Defect ``selftest.*``, or what stopped the run.

        A result that is too old is renewed by the caller that notices; others have the old one meanwhile.
        """
        last = self._last
        if last is None or self._clock() >= last.good_until:
            self.run()
            last = self._last
        if last is None:
            raise _pending()
        if last.failure is not None:
            raise _again(last.failure)

    def require_bounds(self) -> None:
        """Return unless the KDC gives too much; raises Defect ``selftest.too_much``, Outage ``selftest.pending``.

        Whatever else is wrong stops only those whom it concerns, when they ask the KDC themselves.
        """
        if not self._known.wait(FIRST_SECONDS):
            raise _pending()
        excess = self._excess
        if excess is not None:
            raise _again(excess)

    def keep(self) -> None:
        """Run now, whenever the result is too old, and when told to; for a thread that ends with the process."""
        while True:
            self._again.clear()
            try:
                self.run()
            except Exception as error:
                # Without this thread a change at the KDC would go unseen.
                log.exception("selftest.defect", kind=type(error).__name__)
            last = self._last
            left = AWAY_SECONDS if last is None else last.good_until - self._clock()
            self._again.wait(max(left, AWAY_SECONDS))

    def look_again(self) -> None:
        """Have ``keep`` run at once: somebody says that something has changed."""
        self._again.set()

    def run(self) -> None:
        """Ask everything once and keep the result; does nothing while another thread does so."""
        if not self._running.acquire(blocking=False):
            return
        try:
            self._last = self._result()
            self._known.set()
        finally:
            self._running.release()

    def _result(self) -> _Result:
        try:
            _require_time(self._kdc_ahead_seconds())
        except BridgeError as error:
            return _Result(self._clock() + AWAY_SECONDS, error)
        try:
            self._try_everything(self._expectations())
        except BridgeError as error:
            if isinstance(error, Defect):
                self._excess = error
            return _Result(self._clock() + BAD_SECONDS, error)
        return _Result(self._clock() + GOOD_SECONDS, None)

    def _try_everything(self, expected: Expectations) -> None:
        with self._on_record(expected), self._ask() as questions:
            _require_refusals(questions, expected)
            self._excess = None
            _require_services(questions, expected)

    @contextmanager
    def _on_record(self, expected: Expectations) -> Iterator[None]:
        """Intent and outcome: the KDC's log will show these attempts, and must not show any without an intent."""
        reference = new_reference()
        people = tuple(expected.refused_people) + ((expected.witness,) if expected.witness else ())
        self._append(Record(RecordType.SERVICE, Phase.INTENT, reference, detail=_detail(people)))
        try:
            yield
        except BridgeError as error:
            self._append(Record(RecordType.SERVICE, Phase.FAILED, reference, code=error.code, detail=_detail(people)))
            raise error.referenced(reference) from error
        self._append(Record(RecordType.SERVICE, Phase.OK, reference, detail=_detail(people)))

    def _append(self, record: Record) -> None:
        with self._ledger.begin() as tx:
            tx.append(record)


def _detail(people: tuple[str, ...]) -> dict[str, str | tuple[str, ...]]:
    return {"act": "self-test", "tried": people}


def _again(failure: BridgeError) -> BridgeError:
    """The failure anew: one exception object raised in many threads would gather the tracebacks of all."""
    return type(failure)(failure.code, failure.title, failure.remedy, **failure.context)


def _pending() -> Outage:
    return Outage(
        "selftest.pending",
        "The broker has not yet tried what its KDC lets it do.",
        "Wait a few seconds; if it lasts, look at the ci-bridge-broker service.",
    )


def _require_time(ahead: float) -> None:
    if abs(ahead) > MOST_SKEW_SECONDS:
        raise Outage(
            "selftest.clock_skew",
            f"The KDC's clock is {ahead:+.0f} s away from the bridge's.",
            "Correct the time synchronisation of both hosts.",
            ahead_seconds=round(ahead),
        )


def _require_refusals(questions: Questions, expected: Expectations) -> None:
    given = [one for one in expected.refused_services if questions.reach(one) is Reply.GIVEN]
    for person in expected.refused_people:
        given += [person for target in expected.listed[:1] if questions.act_as(person, target) is Reply.GIVEN]
    if given:
        raise Defect(
            "selftest.too_much",
            "The KDC would give the bridge tickets that it must never have.",
            "Correct krbAllowedToDelegateTo and allow_forwardable at the KDC; ci-bridge doctor kerberos says which.",
            given=tuple(given),
        )


def _require_services(questions: Questions, expected: Expectations) -> None:
    missing = [one for one in expected.listed if questions.reach(one) is not Reply.GIVEN]
    if expected.witness and expected.listed:
        reply = questions.act_as(expected.witness, expected.listed[0])
        missing += [expected.witness] if reply is not Reply.GIVEN else []
    if missing:
        raise Outage(
            "selftest.too_little",
            "The KDC refuses the bridge tickets that jobs need.",
            "Correct the bridge's principal at the KDC; ci-bridge doctor kerberos says what it lacks.",
            missing=tuple(missing),
        )
