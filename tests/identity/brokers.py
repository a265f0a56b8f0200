"""Several real brokers on the realm's bridge host, over its one database, that can be killed and started again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bridge.broker.client import BrokerClient
from bridge.errors import Outage
from realm import Realm, bridgehost
from realm.host import kill_session
from tests.tap.plugin import ENVIRONMENT

USER = "ci-bridge-broker"
_DATABASE = "/var/lib/ci-bridge/bridge.sqlite3"
_READY_SECONDS = 60

RELAY = Path(__file__).with_name("relay.py")


class Broker:
    """One of them, with a socket of its own."""

    def __init__(self, realm: Realm, number: int) -> None:
        self._host = realm.host("bridge")
        self._directory = f"/run/ci-bridge-broker-{number}"
        self._config = f"/etc/ci-bridge/broker-{number}.toml"
        self._host.mkdir(self._directory, mode=0o700, owner=USER)
        extra = f'socket = "{self._directory}/s"\nprivate_directory = "{self._directory}"\n[web]'
        text = self._host.read(bridgehost.CONFIG).decode().replace("[web]", extra, 1)
        self._host.write(self._config, text)
        relay = [sys.executable, str(RELAY), f"{self._directory}/relay", f"{self._directory}/s"]
        self._relay = self._host.popen(relay, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = BrokerClient(self._host.path(self._directory) / "relay", timeout_seconds=15)
        self.process = self._start()

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The reply's header; raises what the broker raised, or Outage when it is not there."""
        return self.client.ask(op, **fields)[0]

    def kill_and_restart(self) -> None:
        """SIGKILL, in the middle of whatever it does, and a new one in its place."""
        kill_session(self.process)
        self.process.wait(30)
        self.process = self._start()

    def close(self) -> None:
        """End it and take its files away."""
        for process in (self.process, self._relay):
            kill_session(process)
            process.wait(30)
        self._host.run(["rm", "-rf", self._directory, self._config])

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [*bridgehost.COMMAND, "broker", "--config", self._config]
        process = self._host.popen(
            argv, user=USER, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline, pause = time.monotonic() + _READY_SECONDS, threading.Event()
        while True:
            try:
                self.ask("ping")
            except Outage:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                pause.wait(0.05)
            else:
                return process


def recorded_runs(realm: Realm) -> list[dict[str, Any]]:
    """Every run in the database that they all write to: ``job_id``, ``run_id``, ``attempt``."""
    argv = ["sqlite3", "-json", "-readonly", _DATABASE, "SELECT job_id, run_id, attempt FROM runs"]
    rows: list[dict[str, Any]] = json.loads(realm.host("bridge").run(argv).stdout or b"[]")
    return rows
