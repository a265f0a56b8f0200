"""The steps of the demo: each does one thing as a person would, and returns what shows that it happened."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from typing import Self

from realm import bridgehost, forge, tls
from realm.cluster import Realm
from realm.demo import projects
from realm.demo.narrator import require
from realm.gitlab.client import JobHandle, ProjectHandle

WAIT_SECONDS = 60.0
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|section_(?:start|end):\S+|\r")


class Scenes:
    """Everything that happens, on one realm."""

    def __init__(self, realm: Realm) -> None:
        self.realm = realm
        self.gitlab = forge.control(realm)
        self.solved: JobHandle | None = None
        self._projects: dict[str, ProjectHandle] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.gitlab.close()

    def alice_and_bob(self) -> Iterator[str]:
        """Both push; both run at once, each as themselves."""
        mine = self._start("alice", "chem/solver", projects.SOLVER)
        other = self._start("bob", "bio/genome", projects.GENOME)
        self.solved = self._finish(mine, "success")
        aligned = self._finish(other, "success")
        yield from self._as_themselves(self.solved, "alice", 20001)
        yield from self._as_themselves(aligned, "bob", 20002)

    def artifact(self) -> Iterator[str]:
        """What the job wrote on the compute node can be downloaded from GitLab."""
        require(self.solved, "alice's job has not run")
        assert self.solved is not None  # noqa: S101 - said above, for the type checker
        project = self._projects["chem/solver"]
        packed = self._api("alice", f"/projects/{project.id}/jobs/{self.solved.id}/artifacts")
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            text = archive.read("result.txt").decode().strip()
        require(text == "WAVEFUNCTION COLLAPSED AS ALICE", f"the artifact holds {text!r}")
        yield f"result.txt of job {self.solved.id}: {text}"

    def exit_code(self) -> Iterator[str]:
        """The script's own exit code decides, so that allow_failure:exit_codes works."""
        job = self._finish(self._start("alice", "chem/fails", projects.EXIT_THREE), "failed")
        require(job.exit_code == 3, f"GitLab has exit code {job.exit_code}")
        require(job.failure_reason == "script_failure", f"GitLab has the reason {job.failure_reason}")
        yield f"job {job.id}: exit code {job.exit_code}, {job.failure_reason}"

    def cancel(self) -> Iterator[str]:
        """Cancel in GitLab ends the job in Slurm, and Slurm says so."""
        job = self._start("alice", "chem/endless", projects.ENDLESS)
        self.gitlab.wait_for_trace(job.id, "started", timeout_seconds=WAIT_SECONDS)
        slurm_id = _slurm_id(self._trace(job))
        self.gitlab.cancel_job(job.id)
        self._finish(job, "canceled")
        state = self._sacct(slurm_id)
        require(state.startswith("CANCELLED"), f"Slurm has {state}")
        yield f"GitLab job {job.id} canceled -> Slurm job {slurm_id} {state}"
        yield from _lines(self._trace(job), "confirmed")

    def refused(self, person: str, path: str, code: str) -> Iterator[str]:
        """A person that policy, account or KDC does not let through: a code, a sentence, a remedy; no retry."""
        job = self._finish(self._start(person, path, projects.HELLO), "failed")
        trace = self._trace(job)
        require(code in trace, f"the job log does not name {code}: {trace[-600:]}")
        require("hello" not in trace.replace("hello)", ""), "the script ran")
        require(job.failure_reason == "script_failure", f"the runner may retry: {job.failure_reason}")
        yield from _lines(trace, code)

    def kdc_refused(self) -> Iterator[str]:
        """carol's row and policy say yes; the KDC, where her principal is locked, says no."""
        yield from self.refused("carol", "chem/carol", "kerberos.client_revoked")
        lines = [line for line in self.realm.log("krb5kdc").splitlines() if "CLIENT LOCKED OUT" in line]
        require(lines, "the KDC's log has no refusal")
        yield "KDC: " + lines[-1].split(": ", 1)[-1].partition("authtime")[0].strip()

    def nothing_left(self) -> Iterator[str]:
        """No job, no ticket, no private file; and no krbtgt of anybody was ever on a node."""
        queue = self.realm.host("ctl").run(["squeue", "--noheader"]).stdout.decode().strip()
        require(not queue, f"Slurm still has {queue}")
        for name in ("login", "node1", "node2"):
            found = self.realm.host(name).run(["find", "/tmp", "-name", "krb5cc_*"]).stdout.decode().split()
            require(not found, f"{name} still has {found}")
        left = self.realm.host("login").run(["find", "/builds", "-mindepth", "2", "-type", "d", "-name", "private"])
        require(not left.stdout.strip(), f"left in /builds: {left.stdout.decode()}")
        yield "Slurm's queue is empty; no ticket cache on login, node1, node2; no private directory in /builds"

    def timeline(self) -> Iterator[str]:
        """One job, from evidence to exit code, in a log that shows when somebody changes it."""
        require(self.solved, "alice's job has not run")
        assert self.solved is not None  # noqa: S101 - said above, for the type checker
        text = bridgehost.ci_bridge(self.realm, "audit", "timeline", "--job", str(self.solved.id))
        for needle in ("admission", "alice(20001)", "host/login.realm.test@REALM.TEST", "node=node"):
            require(needle in text, f"the timeline lacks {needle}: {text}")
        yield from text.rstrip().splitlines()
        verdict = json.loads(bridgehost.ci_bridge(self.realm, "audit", "verify", "--json"))
        require(verdict["ok"], f"the log is broken: {verdict}")
        yield f"ci-bridge audit verify: {verdict['size']} entries, Merkle root {verdict['root'][:16]}..."

    def _start(self, person: str, path: str, files: Mapping[str, str]) -> JobHandle:
        project = self._projects.get(path)
        if project is None:
            project = self.gitlab.create_project(path, files=dict(files), members={person: 40}, protected_refs=["main"])
            self._projects[path] = project
        return self.gitlab.start_pipeline(project.id, person).jobs[0]

    def _finish(self, job: JobHandle, status: str) -> JobHandle:
        done = self.gitlab.wait_for_job(
            job.id, frozenset({"success", "failed", "canceled"}), timeout_seconds=WAIT_SECONDS
        )
        require(done.status == status, f"job {job.id} is {done.status}, not {status}:\n{self._trace(done)[-1500:]}")
        return done

    def _trace(self, job: JobHandle) -> str:
        return _ESCAPES.sub("", self.gitlab.trace(job.id))

    def _as_themselves(self, job: JobHandle, account: str, uid: int) -> Iterator[str]:
        trace = self._trace(job)
        require(f"who: {account} {uid}" in trace, f"the job did not run as {account}:\n{trace}")
        require(re.search(r"host: node[12]", trace), "the job did not run on a compute node")
        services = set(re.findall(r"\S+/\S+@REALM\.TEST", trace.partition("Valid starting")[2]))
        listed = {f"lustre_mds/mds{number}.realm.test@REALM.TEST" for number in (1, 2)}
        require(services == listed and "krbtgt" not in trace, f"tickets on the node: {services}")
        yield from _lines(trace, "Running as", "Because", f"who: {account}", "host: node", "Default principal")
        yield "tickets: " + ", ".join(sorted(services))

    def _sacct(self, slurm_id: str) -> str:
        """slurmctld tells slurmdbd in its own time."""
        deadline = time.monotonic() + 20
        state = ""
        while time.monotonic() < deadline:
            done = self.realm.host("ctl").run(["sacct", "-X", "-P", "-n", "-o", "State", "-j", slurm_id])
            state = done.stdout.decode().strip()
            if state and state not in ("RUNNING", "PENDING"):
                break
            time.sleep(0.2)
        return state

    def _api(self, person: str, path: str) -> bytes:
        """GET from GitLab's API as a person at their desk."""
        header = f"@{forge.token_header(person)}"
        argv = ["curl", "--silent", "--fail", "--cacert", tls.CA_PATH, "--header", header, f"{forge.URL}/api/v4{path}"]
        return self.realm.host("desk").run(argv, user=person).stdout


def _slurm_id(trace: str) -> str:
    found = re.search(r"Slurm job (\d+)", trace)
    require(found, "the job log names no Slurm job")
    return found[1] if found else ""


def _lines(trace: str, *needles: str) -> Iterator[str]:
    """The first line of the log with each needle."""
    for needle in needles:
        lines = (line.strip() for line in trace.splitlines() if needle in line and not line.startswith("$"))
        yield next(lines, f"(no line with {needle})")
