"""Measures what live runs cost: RPCs that slurmctld answers in a minute, and memory of the web process for each run.

    .venv/bin/python benchmarks/live_runs.py [--json] [--few N] [--many N] [--seconds N]

As root, on the pocket realm. Both are taken with few runs and with many, all with a job in Slurm's queue; the RPCs of
the two must be equal, and the memory is the difference between them, a run. ``sdiag`` counts the RPCs, by their names.
The first runs also pay for what the process then has for all: threads, and what libraries keep of statements they saw.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import sys
import time

from main_job import Jobs, Pinned, Run

from realm import Realm, bridgehost, forge, tls

SETTLE_SECONDS = 8
"""After the last submission the pace of polling is fast for a while, and slurmd reports the jobs that began."""

MOST_KIB = 64
_RPC = re.compile(r"^\s+(REQUEST_[A-Z_]+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)
_OF_JOBS = re.compile(r"REQUEST_(JOB|SHARE|PARTITION|NODE)_INFO")
"""What squeue, scontrol and sinfo ask, by whatever name; Slurm's own daemons talk among themselves as they like."""


def asked(realm: Realm, seconds: float) -> float:
    """RPCs of the kind that clients send, a minute."""
    ctl = realm.host("ctl")
    ctl.run(["sdiag", "--reset"])
    began = time.monotonic()
    time.sleep(seconds)
    counts = _RPC.findall(ctl.run(["sdiag"]).stdout.decode())
    total = sum(int(count) for name, count in counts if _OF_JOBS.match(name))
    return total * 60 / (time.monotonic() - began)


def resident_kib(realm: Realm) -> int:
    """KiB that the web process has in memory, less what it shares."""
    host = realm.host("bridge")
    pid = host.run(["pgrep", "-f", "--", "--web-only"]).stdout.split()[0].decode()
    lines = host.run(["cat", f"/proc/{pid}/smaps_rollup"]).stdout.decode().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))


def begin(client: Pinned, jobs: Jobs) -> Run:
    """Admit a run and put a long job of it into Slurm's queue."""
    answer = client.post(f"{bridgehost.URL}/v1/runs", json=jobs.take(client))
    answer.raise_for_status()
    run = Run(client, answer.json())
    for _ in run.events(run.start("prepare")):
        pass
    for header, _ in run.events(run.start("build_script", b"sleep 1800\n")):
        if header["kind"] == "note" and header["text"].startswith("Slurm job"):
            break
    return run


def main() -> int:
    """Measure and print; exit code 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--few", type=int, default=60, help="enough that the process is warm (default 60)")
    parser.add_argument("--many", type=int, default=160)
    parser.add_argument("--seconds", type=float, default=40, help="of each count of RPCs (default 40)")
    options = parser.parse_args()
    rpcs, memory = [], []
    with Realm() as realm:
        context = ssl.create_default_context(cadata=realm.host("runner").read(tls.CA_PATH).decode())
        addresses = {forge.URL: "gitlab", bridgehost.URL: "bridge"}
        jobs, runs = Jobs(realm, options.many), list[Run]()
        with realm.host("runner").network(), Pinned(realm, addresses, context) as client:
            for wanted in (options.few, options.many):
                while len(runs) < wanted:
                    runs.append(begin(client, jobs))
                time.sleep(SETTLE_SECONDS)
                rpcs.append(asked(realm, options.seconds))
                memory.append(resident_kib(realm))
            for run in runs:
                run.finish()
        jobs.close()
    each = (memory[1] - memory[0]) / (options.many - options.few)
    figures = {
        "few": options.few,
        "many": options.many,
        "rpcs_per_minute_few": round(rpcs[0], 1),
        "rpcs_per_minute_many": round(rpcs[1], 1),
        "kib_per_run": round(each, 1),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items()))
    return 0 if rpcs[1] <= 1.1 * rpcs[0] and each < MOST_KIB else 1


if __name__ == "__main__":
    sys.exit(main())
