"""The cleanup call: ends the run at the bridge, whatever happened before."""

from __future__ import annotations

from collections.abc import Mapping

from runner.executor.client import Client
from runner.executor.failures import CallFailed, Unreachable
from runner.executor.joblog import JobLog
from runner.executor.patience import Patience
from runner.executor.run_env import from_environ
from runner.executor.settings import Settings


def finish(settings: Settings, environ: Mapping[str, str], log: JobLog) -> None:
    """Tell the bridge that the run is over; may be repeated; raises CallFailed.

    Needs only what the config call left in the environment, so it works after a SIGKILL of the other calls. A run that
    the bridge no longer knows is over.
    """
    handle = from_environ(environ)
    patience = Patience(log, settings.cleanup_seconds)
    client = Client(settings, handle.session, settings.cleanup_seconds)
    while True:
        try:
            client.call("POST", f"/v1/runs/{handle.run_id}/finish", b"{}")
            return
        except Unreachable as error:
            patience.failed(error)
        except CallFailed as failure:
            if failure.code == "run.unknown":
                return
            raise
