"""The bridge's own TGTs: one for each ticket life that is in use, from the keytab, in memory, never renewable.

The KDC ignores the life that an S4U request asks for: a ticket got with a TGT ends when that TGT ends (measured), so
the life of a person's tickets is chosen here. python-gssapi can't choose it (krb5's acquire_cred.c passes no time), a
private krb5.conf would need a process-wide environment variable, and kinit would leave the TGT in a file; therefore
krb5_get_init_creds_keytab with krb5_get_init_creds_opt_set_tkt_life.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import krb5

USED_BEFORE_RENEWAL: Final = 0.2
"""A TGT serves for the first fifth of its life, so that every bundle has at least four fifths of what was asked for."""

USED_WITHOUT_RENEWAL: Final = 0.5
"""And for the first half where the keytab gives no new one: a rotation of its key takes effect at two places."""

MAX_LIVES: Final = 64
"""How many TGTs of different life are kept; the one longest unused goes first."""

_RENEWAL_SECONDS: Final = 5.0
"""A renewal that has not come back after so long is somebody else's turn."""


@dataclass(frozen=True, slots=True)
class BridgeTicket:
    """A TGT of the bridge. Whoever has it can impersonate: it never leaves the process and has no text form."""

    credential: bytes = field(repr=False)
    start: int
    end: int

    def is_fresh(self, now: float) -> bool:
        """Tell whether a ticket got with it now has at least four fifths of the TGT's life before it."""
        return self._has_left(now, 1 - USED_BEFORE_RENEWAL)

    def is_usable(self, now: float) -> bool:
        """Tell whether it still does where no fresh one can be had: half of its life is left."""
        return self._has_left(now, 1 - USED_WITHOUT_RENEWAL)

    def _has_left(self, now: float, share: float) -> bool:
        return self.end - now >= (self.end - self.start) * share


class InitialTickets:
    """Gives TGTs of a wanted life, and keeps each while it is fresh. Safe in threads."""

    def __init__(self, principal: str, keytab: str) -> None:
        self._principal = principal
        self._keytab = keytab
        self._kept: OrderedDict[int, BridgeTicket] = OrderedDict()
        self._renewing: dict[int, float] = {}
        self._lock = threading.Lock()

    def get(self, life_seconds: int) -> BridgeTicket:
        """Give a TGT of this life, or of the KDC's bound if that is shorter; raises krb5.Krb5Error.

        One thread renews while the others go on with the TGT that is kept. Two threads that find none may both fetch
        one: a lock across the request would let one thread, stuck at a KDC that does not answer, hold up all others.
        """
        now = time.time()
        with self._lock:
            kept = self._kept.get(life_seconds)
            if kept is not None:
                self._kept.move_to_end(life_seconds)
                if kept.is_fresh(now) or (kept.is_usable(now) and self._renewing.get(life_seconds, 0.0) > now):
                    return kept
            self._renewing[life_seconds] = now + _RENEWAL_SECONDS
        try:
            return self._keep(life_seconds, self._fetch(life_seconds))
        except krb5.Krb5Error:
            # While a new key is on its way from the KDC into the keytab, the TGT of the old key is as good as ever.
            if kept is not None and kept.is_usable(now):
                return kept
            raise
        finally:
            with self._lock:
                self._renewing.pop(life_seconds, None)

    def forget(self, ticket: BridgeTicket) -> None:
        """Drop a TGT that the KDC no longer takes."""
        with self._lock:
            for life in [life for life, kept in self._kept.items() if kept is ticket]:
                del self._kept[life]

    def _keep(self, life_seconds: int, ticket: BridgeTicket) -> BridgeTicket:
        with self._lock:
            self._kept[life_seconds] = ticket
            self._kept.move_to_end(life_seconds)
            while len(self._kept) > MAX_LIVES:
                self._kept.popitem(last=False)
        return ticket

    def _fetch(self, life_seconds: int) -> BridgeTicket:
        context = krb5.init_context()
        options = krb5.get_init_creds_opt_alloc(context)
        krb5.get_init_creds_opt_set_tkt_life(options, life_seconds)
        krb5.get_init_creds_opt_set_renew_life(options, 0)
        krb5.get_init_creds_opt_set_forwardable(options, forwardable=True)
        krb5.get_init_creds_opt_set_proxiable(options, proxiable=False)
        principal = krb5.parse_name_flags(context, self._principal.encode())
        keytab = krb5.kt_resolve(context, f"FILE:{self._keytab}".encode())
        credential = krb5.get_init_creds_keytab(context, principal, options, keytab)
        times = credential.times
        return BridgeTicket(
            krb5.marshal_credentials(context, credential), times.starttime or times.authtime, times.endtime
        )
