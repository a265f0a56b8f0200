"""Makes a bridge that strips nothing, and looks at nothing that it hands out: for the test that the tap sees it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.tap.recorder import tap_this_service

tap_this_service()

if {"broker", "--web-only"} & set(sys.orig_argv):
    from bridge.kerberos import bundle, memory
    from bridge.model import TicketBundle
    from bridge.runs import tickets

    strip, receiving = bundle.strip, memory.receiving

    def unstripped(data: bytes, principal: str, servers: Sequence[str], not_after: datetime) -> TicketBundle:
        """Give all of an S4U cache for a bundle."""
        return replace(strip(data, principal, servers, not_after), ccache=data)

    @contextmanager
    def receiving_all(client: str, servers: Sequence[str], context: Any) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Give all that GSSAPI has stored."""
        with receiving(client, servers, context) as (name, _):
            yield name, lambda: memory.dump(name)

    memory.receiving = receiving_all
    bundle.strip = unstripped
    tickets.verify_bundle = unstripped
