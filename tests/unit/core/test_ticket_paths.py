"""Every way to tickets goes through the second look at the account, for the uid that the decision was made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from bench import PEOPLE, Broker, refused
from test_ticketing import HOST, JOB, put_stage

from bridge.admission import Admission, Admitted
from bridge.broker.listed import targets_of
from bridge.errors import Outage
from bridge.kerberos.guard import AccountGuard
from bridge.kerberos.impersonation import Impersonation
from bridge.model import StageState
from bridge.ticketing import TicketDesk, Use
from tests.fakes import FakeDirectory

REALM = "REALM.TEST"


class NoKdc:
    """What would ask the KDC: notes for whom, and gets nothing."""

    principal = f"ci-bridge/bridge.realm.test@{REALM}"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def obtain(self, account: str, user: str, servers: object, lifetime_seconds: int) -> bytes:
        """See Exchange."""
        self.asked.append(user)
        raise Outage("kerberos.kdc_unreachable", "No KDC answered.", "Retry.")


class Guarded:
    """The broker's desks, with the real wall in front of a KDC that only listens."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.kdc, self.directory = broker, NoKdc(), FakeDirectory(*PEOPLE)
        guard = AccountGuard(self.directory, 1000, frozenset(), frozenset())
        listed = [target for cluster in broker.active.clusters() for target in targets_of(cluster)]
        able = Impersonation(self.kdc, REALM, listed, guard)  # type: ignore[arg-type]
        self.tickets: TicketDesk = replace(broker.tickets, impersonator=able)
        self.admission: Admission = replace(broker.admission, impersonator=able)
        self.run: Admitted = broker.admission.admit(broker.evidence())
        put_stage(broker, self.run.run_id, StageState.RUNNING)

    def for_run(self, use: Use) -> Callable[[], object]:
        """A run asks with its session."""
        return lambda: self.tickets.for_run(self.run.run_id, self.run.session, use)

    def for_node(self) -> object:
        """A node asks, or asks again before its tickets end."""
        return self.tickets.for_node(self.tickets.claim(HOST, JOB, 20001, "node1").claim_id)

    def admit(self) -> object:
        """A job comes; the decision's own look into the directory is a moment older."""
        return self.admission.admit(self.broker.evidence(job_id=302))


def _ask(guarded: Guarded, path: str) -> Callable[[], object]:
    if path == "admit":
        return guarded.admit
    return guarded.for_node if path == "node" else guarded.for_run(Use(path))


@pytest.mark.threat("T11")
@pytest.mark.parametrize("path", ["admit", "node", *(use.value for use in Use)])
def test_no_way_to_tickets_is_open_for_a_name_that_is_somebody_elses_by_now(broker: Broker, path: str) -> None:
    guarded = Guarded(broker)
    guarded.directory.accounts["alice"] = replace(PEOPLE[0], uid=29001)

    error = refused(_ask(guarded, path))
    assert error.code == "kerberos.uid_changed"
    assert guarded.kdc.asked == []
    (failed,) = broker.records(phase="failed")
    assert (failed["code"], failed["reference"]) == ("kerberos.uid_changed", error.reference)

    guarded.directory.accounts["alice"] = PEOPLE[0]
    again = guarded.for_run(Use.SSH) if path == "admit" else _ask(guarded, path)
    assert refused(again).code == "kerberos.kdc_unreachable"
    assert guarded.kdc.asked == [f"alice@{REALM}"]
