"""Measures the main job against the bare tools, in one run on one pocket realm; prints figures and ratios.

    .venv/bin/python benchmarks/main_job.py [--json] [--rounds N]

Run it as root on a quiet machine. Ratios travel between machines; milliseconds do not.
"""

from __future__ import annotations

import argparse
import json
import ssl
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from realm import Realm, bridgehost, forge, tls
from realm.demo.projects import ci_file, job
from realm.workspace import CHECKOUT
from runner import wire

JOBS_PER_PIPELINE = 50
LOG_BYTES = 128 * 1024 * 1024
WARM = 5
KEPT_RUNS = 30
"""Runs that stay for the later measurements. Live ones are watched in GitLab, in this realm every second."""


@dataclass
class Figures:
    """What was measured, by name."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, *, of: float | None = None, aim: str = "") -> None:
        """Take a figure, with its ratio to the bare tool's where there is one."""
        ratio = None if of is None else round(value / of, 3)
        self.rows.append({"name": name, "value": round(value, 3), "unit": unit, "ratio": ratio, "aim": aim})

    def show(self) -> None:
        """Print a table."""
        for row in self.rows:
            ratio = "" if row["ratio"] is None else f"ratio {row['ratio']:<7}"
            print(f"{row['name']:<58} {row['value']:>10} {row['unit']:<5} {ratio:<14} {row['aim']}")


class Jobs:
    """Running GitLab jobs of a person with their tokens, taken from the coordinator as a runner takes them."""

    def __init__(self, realm: Realm, wanted: int, person: str = "alice", path: str = "chem/bench") -> None:
        tag = f"bench-{path.replace('/', '-')}"
        self._gitlab = forge.control(realm)
        self._runner = self._gitlab.create_runner(tag, tags=[tag], run_untagged=False)
        names = [f"j{number}" for number in range(JOBS_PER_PIPELINE)]
        files = ci_file(**{name: job("true", tags=[tag]) for name in names})
        project = self._gitlab.create_project(path, files=files, members={person: 40}, protected_refs=["main"])
        for _ in range(-(-wanted // JOBS_PER_PIPELINE)):
            self._gitlab.start_pipeline(project.id, person)

    def take(self, client: httpx2.Client) -> dict[str, Any]:
        """Return the evidence of a fresh running job."""
        answer = client.post(f"{forge.URL}/api/v4/jobs/request", json={"token": self._runner.token, "info": {}})
        answer.raise_for_status()
        payload = answer.json()
        info, git = payload["job_info"], payload["git_info"]
        variables = {variable["key"]: variable["value"] for variable in payload["variables"]}
        facts = {
            "job_id": payload["id"],
            "project_id": info["project_id"],
            "pipeline_id": info["pipeline_id"],
            "user_id": info["user_id"],
            "ref": git["ref"],
            "sha": git["sha"],
            "job_name": info["name"],
            "stage": info["stage"],
            "project_path": variables["CI_PROJECT_PATH"],
            "timeout_seconds": payload["runner_info"]["timeout"],
        }
        return {"id_token": variables["CI_BRIDGE_TOKEN"], "job_token": payload["token"], "facts": facts}

    def close(self) -> None:
        """Let go of the control socket."""
        self._gitlab.close()


class InBroker:
    """A broker of the same settings, database and policies beside the realm's own, which tells where its time goes."""

    def __init__(self, realm: Realm) -> None:
        argv = [sys.executable, "-P", str(CHECKOUT / "benchmarks" / "in_broker.py"), bridgehost.CONFIG]
        pipe = subprocess.PIPE
        self._process = realm.host("bridge").popen(argv, user="ci-bridge-broker", stdin=pipe, stdout=pipe)
        self._answer("ready")

    def admit(self, evidence: dict[str, Any]) -> dict[str, float]:
        """Seconds of one admission, see ``in_broker``."""
        stream = self._process.stdin
        if stream is None:
            raise RuntimeError("the broker has no pipe")
        facts = {"server_url": None, **evidence["facts"]}
        asked = {"scheduler_parameters": "", "cluster": None, **evidence, "facts": facts}
        stream.write(json.dumps(asked).encode() + b"\n")
        stream.flush()
        figures: dict[str, float] = json.loads(self._answer("{"))
        return figures

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30)

    def _answer(self, begins: str) -> str:
        """The next line that begins so; those of the broker's own log do not."""
        for line in self._process.stdout or ():
            text = str(line.decode())
            if text.startswith(begins):
                return text
        raise RuntimeError("the broker beside the realm's has ended")


class Run:
    """An admitted run, as the executor sees it."""

    def __init__(self, client: httpx2.Client, reply: dict[str, Any]) -> None:
        self._client = client
        self._base = f"{bridgehost.URL}/v1/runs/{reply['run_id']}"
        self._auth = {"Authorization": f"Bearer {reply['session']}"}

    def start(self, stage: str, script: bytes = b"") -> str:
        """Start a stage; return its address."""
        address = f"{self._base}/stages/{uuid.uuid4().hex}"
        headers = self._auth | {"Content-Type": "application/octet-stream"}
        self._client.put(f"{address}?stage={stage}", content=script, headers=headers).raise_for_status()
        return address

    def events(self, address: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the stage's frames to its end."""
        after = offset = 0
        while True:
            url = f"{address}/events?after={after}&offset={offset}"
            answer = self._client.get(url, headers=self._auth)
            answer.raise_for_status()
            for header, data in wire.Decoder().feed(answer.content):
                after, offset = header["n"], offset + len(data)
                yield header, data
                if header["kind"] == "end":
                    return

    def finish(self) -> None:
        """End the run."""
        self._client.post(f"{self._base}/finish", headers=self._auth).raise_for_status()


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def timed(action: Callable[[], object]) -> float:
    """Seconds that the action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def executor_start(figures: Figures, rounds: int) -> None:
    """An executor call that does nothing, against Python doing nothing."""
    executor = [str(CHECKOUT / "deploy" / "bin" / "ci-bridge-executor"), "cleanup"]
    bare = ["/usr/bin/python3", "-I", "-S", "-c", "pass"]
    environment = {"PATH": "/usr/bin:/bin", "BUILD_FAILURE_EXIT_CODE": "1", "SYSTEM_FAILURE_EXIT_CODE": "2"}
    pairs = []
    for _ in range(rounds + WARM):
        ours = timed(lambda: subprocess.run(executor, env=environment, check=True, capture_output=True))
        theirs = timed(lambda: subprocess.run(bare, env=environment, check=True, capture_output=True))
        pairs.append((ours, theirs))
    ours, theirs = (statistics.median(column) * 1000 for column in zip(*pairs[WARM:], strict=True))
    figures.add("executor call that does nothing / python3 -I -S -c pass", ours, "ms", of=theirs, aim="< 2x")


def admission(realm: Realm, figures: Figures, client: httpx2.Client, jobs: Jobs, rounds: int) -> list[Run]:
    """Admissions one after the other, token in to tickets in hand: over HTTP, and in a broker that tells its parts."""
    took, asked, parts, runs = [], [], [], list[Run]()
    beside = InBroker(realm)
    for _ in range(rounds + WARM):
        parts.append(beside.admit(jobs.take(client)))
        evidence = jobs.take(client)
        began = time.perf_counter()
        client.get(f"{forge.URL}/api/v4/job", headers={"JOB-TOKEN": evidence["job_token"]}).raise_for_status()
        asked.append(time.perf_counter() - began)
        began = time.perf_counter()
        answer = client.post(f"{bridgehost.URL}/v1/runs", json=evidence)
        took.append(time.perf_counter() - began)
        answer.raise_for_status()
        runs.append(Run(client, answer.json()))
        if len(runs) > KEPT_RUNS:
            runs.pop(0).finish()
    beside.close()
    _shares(figures, took[WARM:], parts[WARM:])
    ours, gitlab = took[WARM:], statistics.median(asked[WARM:])
    for share, name in ((0.50, "p50"), (0.99, "p99")):
        whole = percentile(ours, share)
        figures.add(f"admission {name}, as the runner sees it / GET /job alone", whole * 1000, "ms", of=gitlab * 1000)
    return runs


def _shares(figures: Figures, took: list[float], parts: list[dict[str, float]]) -> None:
    """What of an admission is the bridge's own: all but the time in which it waits for GitLab and for the KDC."""
    waits = [one["gitlab"] + one["kdc"] for one in parts]
    own = [one["whole"] - wait for one, wait in zip(parts, waits, strict=True)]
    away = statistics.median(waits)
    for name in ("gitlab", "kdc", "cpu"):
        text = {"cpu": "processor time of the broker's process"}.get(name, f"wait for {name}")
        figures.add(f"admission p50, {text}", statistics.median(one[name] for one in parts) * 1000, "ms")
    for share, name, aim in ((0.50, "p50", "< 10 ms"), (0.99, "p99", "< 40 ms")):
        figures.add(f"admission {name}, broker's own time", percentile(own, share) * 1000, "ms", aim=aim)
        figures.add(
            f"admission {name}, with HTTP, less both waits", (percentile(took, share) - away) * 1000, "ms", aim=aim
        )


def submission(realm: Realm, figures: Figures, runs: list[Run], rounds: int) -> None:
    """A held, recorded and released job over an open agent, against `ssh login sbatch` with alice's own ticket."""
    desk = realm.host("desk")
    cache = "/tmp/krb5cc_bench"
    desk.run(["kinit", "-k", "-t", realm.user_keytab("alice"), "-c", cache, "alice"], user="alice")
    sbatch = ["ssh", "login.realm.test", "sbatch", "--parsable", "--output=/dev/null", "--wrap=true"]
    environment = {"KRB5CCNAME": f"FILE:{cache}"}
    pairs = []
    for run in runs[: rounds + 2]:
        for _ in run.events(run.start("prepare")):
            pass
        began = time.perf_counter()
        for header, _ in run.events(run.start("build_script", b"true\n")):
            if header["kind"] == "note" and header["text"].startswith("Slurm job"):
                break
        ours = time.perf_counter() - began
        theirs = timed(lambda: desk.run(sbatch, user="alice", env=environment))
        pairs.append((ours, theirs))
    ours, theirs = (statistics.median(column) * 1000 for column in zip(*pairs[2:], strict=True))
    figures.add("job held, recorded, released / ssh login sbatch", ours, "ms", of=theirs, aim="< 0.4x")


def following(realm: Realm, figures: Figures, run: Run) -> None:
    """Bytes a second of a job's log, against `ssh login cat` of a file of the same size."""
    script = f"head -c {LOG_BYTES} /dev/zero | tr '\\\\0' x\n".encode()
    for _ in run.events(run.start("prepare")):
        pass
    seen, first, last = 0, 0.0, 0.0
    for header, data in run.events(run.start("build_script", script)):
        if header["kind"] == "log":
            last = time.perf_counter()
            first = first or last
            seen += len(data)
    if seen != LOG_BYTES:
        raise RuntimeError(f"{seen} of {LOG_BYTES} bytes arrived")
    ours = seen / (last - first) / 1e6
    desk = realm.host("desk")
    fill = ["ssh", "login.realm.test", f"head -c {LOG_BYTES} /dev/zero > /home/alice/log"]
    environment = {"KRB5CCNAME": "FILE:/tmp/krb5cc_bench"}
    desk.run(fill, user="alice", env=environment)
    cat = timed(lambda: desk.run(["ssh", "login.realm.test", "cat", "log"], user="alice", env=environment))
    figures.add("log followed / ssh login cat", ours, "MB/s", of=LOG_BYTES / cat / 1e6)


def main() -> int:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=200, help="admissions to measure (default 200)")
    options = parser.parse_args()
    figures = Figures()
    executor_start(figures, 40)
    with Realm() as realm:
        context = ssl.create_default_context(cadata=realm.host("runner").read(tls.CA_PATH).decode())
        addresses = {forge.URL: "gitlab", bridgehost.URL: "bridge"}
        jobs = Jobs(realm, 2 * (options.rounds + WARM))
        with realm.host("runner").network(), Pinned(realm, addresses, context) as client:
            runs = admission(realm, figures, client, jobs, options.rounds)
            submission(realm, figures, runs, min(25, len(runs) - 3))
            following(realm, figures, runs[-1])
        jobs.close()
    if options.json:
        print(json.dumps(figures.rows, indent=2))
    else:
        figures.show()
    return 0


class Pinned(httpx2.Client):
    """A client that reaches the realm's names without looking them up: there is no resolver in its network."""

    def __init__(self, realm: Realm, addresses: dict[str, str], context: ssl.SSLContext) -> None:
        super().__init__(verify=context, trust_env=False, timeout=60.0)
        self._addresses = {httpx2.URL(url).host: realm.host(host).address for url, host in addresses.items()}

    def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        """Connect to the address, and ask for the name in TLS and in the Host header."""
        name = request.url.host
        request.extensions = dict(request.extensions) | {"sni_hostname": name}
        request.url = request.url.copy_with(host=self._addresses[name])
        return super().send(request, **more)


if __name__ == "__main__":
    sys.exit(main())
