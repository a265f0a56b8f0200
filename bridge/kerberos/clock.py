"""How far the KDC's clock is from ours, seen in a ticket that was made this very moment."""

from __future__ import annotations

import time

import krb5

from bridge.kerberos.deadline import Deadline, Late
from bridge.kerberos.faults import Step, fault, unreachable
from bridge.kerberos.initial import InitialTickets

_LIFE_SECONDS = 300


def kdc_ahead_seconds(principal: str, keytab: str, deadline: Deadline | None = None) -> float:
    """Seconds that the KDC's clock is ahead of ours (negative: behind), from one AS exchange with this keytab.

    The ticket's authtime is the KDC's own, in whole seconds (RFC 4120 section 5.3); 0 where that second may be ours.
    Raises Outage ``kerberos.clock_skew`` (the KDC did not even talk to us), ``kerberos.kdc_unreachable`` or
    ``kerberos.bridge_credential``.
    """
    tickets = InitialTickets(principal, keytab)
    asked_at = time.time()
    try:
        ticket = (deadline or Deadline()).run(lambda: tickets.get(_LIFE_SECONDS))
    except Late as late:
        raise unreachable(principal, str(late)) from None
    except krb5.Krb5Error as error:
        raise fault(Step.INITIAL, error.err_code, str(error), principal) from error
    if ticket.start > time.time():
        return ticket.start - time.time()
    return min(0.0, ticket.start + 1 - asked_at)
