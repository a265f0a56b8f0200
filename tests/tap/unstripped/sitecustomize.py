"""Makes a bridge that strips nothing, and looks at nothing that it hands out: for the test that the tap sees it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from tests.tap.recorder import tap_this_service

tap_this_service()

if {"broker", "--web-only"} & set(sys.orig_argv):
    from bridge.kerberos import bundle, memory
    from bridge.model import TicketBundle
    from bridge.runs import tickets

    strip = bundle.strip

    def unstripped(data: bytes, principal: str, servers: Sequence[str], not_after: datetime) -> TicketBundle:
        """Give all of an S4U cache for a bundle."""
        return replace(strip(data, principal, servers, not_after), ccache=data)

    def everything(self: memory.Receiver, _client: str, _servers: Sequence[str]) -> bytes:
        """Give all that GSSAPI has stored."""
        return memory.dump(self.name.decode())

    memory.Receiver.tickets = everything
    bundle.strip = unstripped
    tickets.verify_bundle = unstripped
