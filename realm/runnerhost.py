"""Host `runner`: the runner with our executor, and on the cluster the settings that go with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from realm import bridgehost, forge, tls
from realm.deployed import PREFIX
from realm.plan import Step
from realm.runner.choice import runner_command
from realm.service import Service
from realm.workspace import CHECKOUT

if TYPE_CHECKING:
    from realm.cluster import Realm

CONFIG = "/etc/gitlab-runner/config.toml"
TAG = "hpc"

_EXECUTOR = f"""\
bridge_url = "{bridgehost.URL}"
ca_file = "{tls.CA_PATH}"
id_token = "CI_BRIDGE_TOKEN"
"""
_NODE = f"""\
bridge_url = "{bridgehost.URL}"
ca_file = "{tls.CA_PATH}"
"""
_RUNNER = """\
concurrent = 8
check_interval = 1

[[runners]]
  name = "pocket"
  url = "{url}"
  token = "{token}"
  executor = "custom"
  builds_dir = "/builds"
  cache_dir = "/cache"
  shell = "bash"
  tls-ca-file = "{ca}"
  [runners.custom]
    config_exec = "{prefix}/ci-bridge-executor"
    config_args = ["config"]
    prepare_exec = "{prefix}/ci-bridge-executor"
    prepare_args = ["prepare"]
    run_exec = "{prefix}/ci-bridge-executor"
    run_args = ["run"]
    cleanup_exec = "{prefix}/ci-bridge-executor"
    cleanup_args = ["cleanup"]
    graceful_kill_timeout = 120
    force_kill_timeout = 10
"""
_PACE = {
    "REALM_RUNNER_PREPARE_RETRY_SECONDS": "0.2",
    "REALM_RUNNER_TRACE_SECONDS": "0.3",
    "REALM_RUNNER_TOUCH_SECONDS": "0.5",
    "REALM_RUNNER_POLL_SECONDS": "0.2",
}
"""The runner waits seconds where a person would not notice; tests would."""


def _configure(realm: Realm) -> None:
    with forge.control(realm) as client:
        runner = client.create_runner("pocket", tags=[TAG], run_untagged=True)
    host = realm.host("runner")
    host.write("/etc/ci-bridge/executor.toml", _EXECUTOR)
    text = _RUNNER.format(url=forge.URL, token=runner.token, ca=tls.CA_PATH, prefix=PREFIX)
    host.write(CONFIG, text, mode=0o600, owner="gitlab-runner")
    for name in ("node1", "node2"):
        if name in realm.hosts:
            realm.host(name).write("/etc/ci-bridge/node.toml", _NODE)
    realm.host("login").mkdir("/builds/.cache", mode=0o1777)
    helper = (CHECKOUT / "realm" / "runner" / "helper_binary.py").read_bytes()
    realm.host("login").write("/usr/local/bin/gitlab-runner", helper, mode=0o755)


def _start(realm: Realm) -> None:
    realm.start_service(
        Service(
            name="runner",
            host="runner",
            argv=tuple(runner_command(Path(CONFIG))),
            user="gitlab-runner",
            env=_PACE,
            cwd=str(CHECKOUT),
            depends=("gitlab", "bridge"),
            stop_seconds=15.0,
        )
    )


STEPS: tuple[Step, ...] = (
    Step("runner.configure", _configure, ("gitlab.start",)),
    Step("runner.start", _start, ("runner.configure", "bridge.start")),
)
