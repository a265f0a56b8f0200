"""A broker that is asked over a pipe and says, for each admission, where its time went; ``main_job.py`` starts it.

    python benchmarks/in_broker.py CONFIG      on the bridge's host, as the broker's user

In: one job's evidence a line, as web asks for it. Out: a line each, JSON with seconds: ``whole``, ``gitlab`` (the HTTP
request, from its first byte to the answer's headers) and ``kdc`` (the two calls of GSSAPI that ask it), and ``cpu``,
the processor time of the whole process. The bridge's own time is ``whole`` less ``gitlab`` less ``kdc``.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests
from gssapi import raw

from bridge.broker import main as broker
from bridge.broker.peer import Peer
from bridge.kerberos import delegation
from bridge.settings import load

_waited: defaultdict[str, float] = defaultdict(float)


def waiting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, with its time taken down under the name."""

    def timed(*arguments: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*arguments, **more)
        finally:
            _waited[name] += time.perf_counter() - began

    return timed


class OverPipe:
    """In the place of ``BrokerServer``: one request after the other, from nobody but who started it."""

    def __init__(self, _listener: object, _allowed: object, handlers: Mapping[str, Callable[..., Any]]) -> None:
        self._admit = handlers["admit"]

    def serve_forever(self) -> None:
        """Answer until the pipe ends."""
        peer = Peer(0, 0, 0)
        print("ready", flush=True)
        for line in sys.stdin:
            request = {"op": "admit", "evidence": json.loads(line)}
            _waited.clear()
            processor, began = time.process_time(), time.perf_counter()
            self._admit(request, peer)
            figures = {"whole": time.perf_counter() - began, "cpu": time.process_time() - processor, **_waited}
            print(json.dumps(figures), flush=True)

    def stop(self) -> None:
        """End with the pipe."""


def main() -> None:
    """Put the broker together as it is, but for its socket and the clocks around what it waits for."""
    timed = {name: waiting("kdc", getattr(raw, name)) for name in ("acquire_cred_impersonate_name", "init_sec_context")}
    vars(delegation)["raw"] = SimpleNamespace(**(vars(raw) | timed))
    vars(broker)["BrokerServer"] = OverPipe
    requests.Session.send = waiting("gitlab", requests.Session.send)  # type: ignore[method-assign]
    broker.serve(load(Path(sys.argv[1])), None)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
