"""A compute node for the node agent's tests: a real KDC, a bridge with a real GSSAPI acceptor, and Slurm's answers."""

from __future__ import annotations

import json
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from self_signed import write_certificate

ROOT = Path(__file__).resolve().parents[3]
NODE_AGENT = ROOT / "deploy/bin/ci-bridge-node"
REALM = "NODE.TEST"
UID = pwd.getpwnam("nobody").pw_uid
"""The node agent looks up the name of the job's user, so it must be one that every machine has."""
WAIT_SECONDS = 30.0


class Realm:
    """A KDC of its own with a host and an HTTP principal, and a user's cache with one service ticket."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        port = free_port()
        config = directory / "krb5.conf"
        config.write_text(
            f"[libdefaults]\ndefault_realm={REALM}\ndns_lookup_kdc=false\nrdns=false\nudp_preference_limit=1\n"
            f"[realms]\n{REALM}={{\nkdc=127.0.0.1:{port}\n}}\n"
        )
        (directory / "kdc.conf").write_text(
            f'[kdcdefaults]\nkdc_ports=""\nkdc_tcp_ports=""\nkdc_listen=127.0.0.1:{port}\n'
            f"kdc_tcp_listen=127.0.0.1:{port}\n[realms]\n{REALM}={{\ndatabase_name={directory}/principal\n"
            f"key_stash_file={directory}/stash\nacl_file={directory}/acl\n}}\n[logging]\nkdc=FILE:{directory}/kdc.log\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "KRB5RCACHENAME": "none:",
        }
        self.run("kdb5_util", "create", "-s", "-W", "-P", "master", "-r", REALM)
        for principal in ("host/node1.test", "HTTP/localhost", "nobody", "alice", "lustre_mds/mds1.test"):
            self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        for principal, keytab in (
            ("host/node1.test", "host"),
            ("HTTP/localhost", "http"),
            ("alice", "alice"),
            ("nobody", "nobody"),
        ):
            self.run("kadmin.local", "-q", f"ktadd -k {directory}/{keytab}.keytab {principal}")
        self.kdc = subprocess.Popen(["krb5kdc", "-n"], env=self.environment, stderr=subprocess.DEVNULL)
        wait_until(lambda: listens(port))

    def run(self, *command: str, **extra: str) -> None:
        subprocess.run(command, env=self.environment | extra, check=True, capture_output=True)

    def bundle(self, person: str = "nobody") -> bytes:
        """Make a cache of a person's that holds a ticket for lustre_mds/mds1.test only."""
        full, out = f"FILE:{self.directory}/full", f"{self.directory}/service.cc"
        self.run("kinit", "-k", "-t", f"{self.directory}/{person}.keytab", "-c", full, person)
        self.run("kvno", "-c", full, "--out-cache", f"FILE:{out}", "lustre_mds/mds1.test")
        return Path(out).read_bytes()

    def close(self) -> None:
        self.kdc.terminate()
        self.kdc.wait(WAIT_SECONDS)


class Node:
    """A node with its configuration, its place for caches, and a bridge to ask."""

    def __init__(self, realm: Realm, directory: Path, mode: str) -> None:
        self.realm, self.directory = realm, directory
        self.caches = directory / "tmp"
        self.caches.mkdir()
        self.caches.chmod(0o1777)
        self.cache = self.caches / f"krb5cc_{UID}"
        (directory / "cachename").write_text(f"FILE:{self.cache}")
        self.tools = directory / "tools"
        self.tools.mkdir()
        (directory / "bundle").write_bytes(realm.bundle())
        shutil.copy(realm.directory / "http.keytab", directory)
        write_certificate(directory / "tls.pem")
        command = [sys.executable, str(Path(__file__).with_name("node_bridge.py")), str(directory), mode]
        self.server = subprocess.Popen(command, env=realm.environment, stderr=subprocess.DEVNULL)
        wait_until((directory / "port").exists)
        self.config = directory / "node.toml"
        self.write_config(f"https://localhost:{(directory / 'port').read_text()}")

    def write_config(self, url: str) -> None:
        self.config.write_text(
            f'bridge_url = "{url}"\nca_file = "{self.directory}/tls.pem"\nnode = "node1.test"\n'
            f'keytab = "{self.realm.directory}/host.keytab"\ncache_directories = ["{self.caches}"]\n'
            f'state_directory = "{self.directory}/state"\nrefusal_directory = "{self.directory}/refused"\n'
            f'tool_directories = ["{self.tools}"]\n'
        )

    def word(self, job_id: str = "4711") -> str:
        """What the job's wrapper finds; empty where there is nothing."""
        path = self.directory / "refused" / job_id
        return path.read_text() if path.exists() else ""

    def hook(self, hook: str, job_id: str = "4711", comment: str = "ci-bridge run=x", uid: int = UID) -> int:
        environment = self.realm.environment | {"SLURM_JOB_ID": job_id, "SLURM_JOB_UID": str(uid)}
        environment |= {"SLURM_JOB_COMMENT": comment, "KRB5CCNAME": "FILE:/nonexistent/other"}
        command = [str(NODE_AGENT), "--config", str(self.config), hook]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.said = done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode

    def hasty_prolog(self, comment: str, seconds: float = 0.8) -> int:
        """As ``hook``, by an agent that gives up within a few seconds."""
        environment = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": str(UID), "SLURM_JOB_COMMENT": comment}
        program = f"import sys; from runner.node import asking, main; asking.LIMIT_SECONDS = {seconds}; "
        program += f"sys.argv = ['x', '--config', {str(self.config)!r}, 'prolog']; sys.exit(main.main())"
        done = subprocess.run(
            ["/usr/bin/python3", "-c", program],
            env=self.realm.environment | environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.said = done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode

    def refresh(self) -> str:
        """Let the timer tick; what the agent said."""
        command = [str(NODE_AGENT), "--config", str(self.config), "refresh"]
        done = subprocess.run(
            command, env=self.realm.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr
        assert "defect" not in done.stderr
        assert done.returncode == 0, done.stderr
        return done.stderr

    def slurm(self, *, steps: tuple[str, ...] = (), jobs: tuple[str, ...] = (), silent: bool = False) -> None:
        """Have Slurm's commands say that steps run here, and that the controller has these jobs on this node."""
        pids = "".join(f"echo '{1000 + number} {job} batch - -'\n" for number, job in enumerate(steps))
        tool(self.tools / "scontrol", f"echo 'PID JOBID STEPID LOCALID GLOBALID'\n{pids}")
        cases = "".join(f"*--jobs={job}' '*--nodelist=node1' '*) echo {job};;\n" for job in jobs)
        answer = "exit 1" if silent else f"case \"$*\" in\n{cases}*) echo 'error: Invalid job id' >&2; exit 1;;\nesac"
        tool(self.tools / "squeue", f'echo "$*" >>{self.directory}/asked\n{answer}')

    def asked(self) -> int:
        """How often the controller was asked."""
        path = self.directory / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def marker(self, job_id: str = "4711", **changes: object) -> dict[str, object]:
        """What the node remembers of a job, changed; empty for nothing."""
        path = self.directory / "state" / str(UID) / job_id
        if not path.exists():
            return {}
        found: dict[str, object] = json.loads(path.read_text()) | changes
        if changes:
            path.write_text(json.dumps(found))
        return found

    def requests(self) -> list[dict[str, object]]:
        path = self.directory / "requests"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def leftovers(self) -> list[str]:
        return sorted(entry.name for entry in self.caches.iterdir() if entry != self.cache)

    def close(self) -> None:
        self.server.send_signal(signal.SIGKILL)
        self.server.wait(WAIT_SECONDS)


def tool(path: Path, script: str) -> None:
    """Make a command."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: object) -> None:
    """Wait for a condition, with a bound."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
