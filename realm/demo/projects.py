"""The demo's projects: what alice and bob push, and what goes wrong for others."""

from __future__ import annotations

import json
from typing import Any

from realm.bridgehost import AUDIENCE
from realm.runnerhost import TAG

ID_TOKEN = {"CI_BRIDGE_TOKEN": {"aud": AUDIENCE}}


def job(*script: str, **more: Any) -> dict[str, Any]:
    """A job for the cluster; `more` are further keys of `.gitlab-ci.yml`."""
    return {"stage": "test", "tags": [TAG], "id_tokens": ID_TOKEN, "script": list(script)} | more


def ci_file(**jobs: dict[str, Any]) -> dict[str, str]:
    """The files of a project with these jobs (JSON is YAML)."""
    return {".gitlab-ci.yml": json.dumps({"stages": ["test"], **jobs}, indent=2)}


SOLVER = ci_file(
    solve=job(
        "echo who: $(id -un) $(id -u)",
        "echo host: $(hostname)",
        "klist",
        "cat input.txt | tr a-z A-Z > result.txt",
        "cat result.txt",
        variables={"SCHEDULER_PARAMETERS": "--partition=ci --nodes=1 --time=5"},
        artifacts={"paths": ["result.txt"]},
    )
) | {"input.txt": "wavefunction collapsed as alice\n"}

GENOME = ci_file(align=job("echo who: $(id -un) $(id -u)", "echo host: $(hostname)", "klist"))

EXIT_THREE = ci_file(three=job("echo about to fail", "exit 3", allow_failure={"exit_codes": [3]}))

ENDLESS = ci_file(endless=job("echo started", "sleep 3600"))

HELLO = ci_file(hello=job("echo hello"))
