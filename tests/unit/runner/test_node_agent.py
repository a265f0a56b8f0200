"""The node agent against a real KDC and a real GSSAPI acceptor: tickets come, go, and go nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from self_signed import write_certificate

ROOT = Path(__file__).resolve().parents[3]
NODE_AGENT = ROOT / "deploy/bin/ci-bridge-node"
REALM = "NODE.TEST"
UID = 20007
WAIT_SECONDS = 10.0

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the node agent works as root, and so does its test")


class Realm:
    """A KDC of its own with a host and an HTTP principal, and a user's cache with one service ticket."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        port = _free_port()
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
        for principal in ("host/node1.test", "HTTP/localhost", "alice", "lustre_mds/mds1.test"):
            self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        for principal, keytab in (("host/node1.test", "host"), ("HTTP/localhost", "http"), ("alice", "alice")):
            self.run("kadmin.local", "-q", f"ktadd -k {directory}/{keytab}.keytab {principal}")
        self.kdc = subprocess.Popen(["krb5kdc", "-n"], env=self.environment, stderr=subprocess.DEVNULL)
        _wait(lambda: _listens(port))

    def run(self, *command: str, **extra: str) -> None:
        subprocess.run(command, env=self.environment | extra, check=True, capture_output=True)

    def bundle(self) -> bytes:
        """Make a cache of alice's that holds a ticket for lustre_mds/mds1.test only."""
        full, out = f"FILE:{self.directory}/full", f"{self.directory}/service.cc"
        self.run("kinit", "-k", "-t", f"{self.directory}/alice.keytab", "-c", full, "alice")
        self.run("kvno", "-c", full, "--out-cache", f"FILE:{out}", "lustre_mds/mds1.test")
        return Path(out).read_bytes()

    def close(self) -> None:
        self.kdc.terminate()
        self.kdc.wait(WAIT_SECONDS)


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if shutil.which("krb5kdc", path="/usr/sbin:/usr/bin") is None:
        pytest.fail("krb5-kdc is not installed; scripts/setup installs it")
    realm = Realm(tmp_path_factory.mktemp("realm"))
    yield realm
    realm.close()


class Node:
    """A node with its configuration, its place for caches, and a bridge to ask."""

    def __init__(self, realm: Realm, directory: Path, mode: str) -> None:
        self.realm, self.directory = realm, directory
        self.caches = directory / "tmp"
        self.caches.mkdir()
        self.caches.chmod(0o1777)
        self.cache = self.caches / f"krb5cc_{UID}"
        (directory / "cachename").write_text(str(self.cache))
        (directory / "bundle").write_bytes(realm.bundle())
        shutil.copy(realm.directory / "http.keytab", directory)
        write_certificate(directory / "tls.pem")
        command = [sys.executable, str(Path(__file__).with_name("node_bridge.py")), str(directory), mode]
        self.server = subprocess.Popen(command, env=realm.environment, stderr=subprocess.DEVNULL)
        _wait((directory / "port").exists)
        self.config = directory / "node.toml"
        self.write_config(f"https://localhost:{(directory / 'port').read_text()}")

    def write_config(self, url: str) -> None:
        self.config.write_text(
            f'bridge_url = "{url}"\nca_file = "{self.directory}/tls.pem"\nnode = "node1.test"\n'
            f'keytab = "{self.realm.directory}/host.keytab"\ncache_directories = ["{self.caches}"]\n'
            f'state_directory = "{self.directory}/state"\nrefusal_directory = "{self.directory}/refused"\n'
        )

    def word(self, job_id: str = "4711") -> str:
        """What the job's wrapper finds; empty where there is nothing."""
        path = self.directory / "refused" / job_id
        return path.read_text() if path.exists() else ""

    def hook(self, hook: str, job_id: str = "4711", comment: str = "ci-bridge run=x", uid: int = UID) -> int:
        environment = self.realm.environment | {"SLURM_JOB_ID": job_id, "SLURM_JOB_UID": str(uid)}
        environment |= {"SLURM_JOB_COMMENT": comment, "KRB5CCNAME": "FILE:/nonexistent/other"}
        command = [str(NODE_AGENT), "--config", str(self.config), hook]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=25, check=False)
        self.said = done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode

    def hasty_prolog(self, comment: str) -> int:
        """As ``hook``, by an agent that gives up within a second."""
        environment = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": str(UID), "SLURM_JOB_COMMENT": comment}
        program = "import sys; from runner.node import hooks, main; hooks.LIMIT_SECONDS = 0.8; "
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

    def requests(self) -> list[dict[str, object]]:
        path = self.directory / "requests"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def leftovers(self) -> list[str]:
        return sorted(entry.name for entry in self.caches.iterdir() if entry != self.cache)

    def close(self) -> None:
        self.server.send_signal(signal.SIGKILL)
        self.server.wait(WAIT_SECONDS)


@pytest.fixture
def node(kdc: Realm, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    tmp_path.chmod(0o755)
    node = Node(kdc, tmp_path, getattr(request, "param", "ok"))
    yield node
    node.close()


def test_prolog_places_the_users_own_cache_and_epilog_removes_it(node: Node) -> None:
    assert node.hook("prolog") == 0, node.said
    status = node.cache.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (UID, 0o600)
    assert node.cache.read_bytes() == (node.directory / "bundle").read_bytes()
    assert node.requests() == [
        {
            "path": "/v1/node/tickets",
            "as": f"host/node1.test@{REALM}",
            "slurm_job_id": 4711,
            "uid": UID,
            "node": "node1.test",
        }
    ]
    assert node.hook("epilog") == 0, node.said
    assert not node.cache.exists()
    assert node.requests()[-1]["path"] == "/v1/node/released"
    assert node.leftovers() == []


@pytest.mark.threat("T23")
def test_epilog_keeps_the_cache_until_the_uids_last_job_ends(node: Node) -> None:
    assert (node.hook("prolog", "1"), node.hook("prolog", "2")) == (0, 0)
    assert node.hook("epilog", "1") == 0
    assert node.cache.exists()
    assert node.hook("epilog", "3") == 0
    assert node.cache.exists(), "a job without tickets of its own took another's away"
    assert node.hook("epilog", "2") == 0
    assert not node.cache.exists()


def test_a_marker_that_outlived_its_tickets_does_not_keep_the_cache(node: Node) -> None:
    assert node.hook("prolog", "1") == 0
    (node.directory / "state" / str(UID) / "2").write_text(f"{int(time.time()) - 1} FILE:{node.cache}\n")
    assert node.hook("epilog", "1") == 0
    assert not node.cache.exists()


@pytest.mark.threat("T35")
@pytest.mark.parametrize("kind", ["file", "link", "dangling", "fifo", "directory"])
def test_whatever_somebody_put_in_the_caches_place_is_replaced_and_never_followed(node: Node, kind: str) -> None:
    victim = node.directory / "victim"
    victim.write_text("precious")
    if kind == "file":
        node.cache.write_text("foreign")
    elif kind == "link":
        node.cache.symlink_to(victim)
    elif kind == "dangling":
        node.cache.symlink_to(node.directory / "made-by-root")
    elif kind == "fifo":
        os.mkfifo(node.cache)
    else:
        (node.cache / "full").mkdir(parents=True)
    assert node.hook("prolog") == 0, node.said
    status = node.cache.lstat()
    assert stat.S_ISREG(status.st_mode)
    assert status.st_uid == UID
    assert victim.read_text() == "precious"
    assert not (node.directory / "made-by-root").exists()


@pytest.mark.threat("T35")
def test_epilog_removes_a_link_and_not_what_it_points_to(node: Node) -> None:
    assert node.hook("prolog") == 0
    victim = node.directory / "victim"
    victim.write_text("precious")
    node.cache.unlink()
    node.cache.symlink_to(victim)
    os.chown(node.cache, UID, UID, follow_symlinks=False)
    assert node.hook("epilog") == 0
    assert not node.cache.is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("node", ["not_ours"], indirect=True)
def test_a_job_that_is_not_the_bridges_is_left_alone(node: Node) -> None:
    assert node.hook("prolog", comment="ci-bridge pretends") == 0
    assert not node.cache.exists()
    assert not (node.directory / "state").exists()


OVER = ["403 killed.user", "403 killed.all", "409 run.ended", "403 run.over_time", "401 job.not_running"]


@pytest.mark.threat("T16")
@pytest.mark.parametrize("node", [f"refused {one}" for one in OVER], indirect=True)
def test_a_job_whose_run_is_over_gets_no_tickets_and_does_not_drain_the_node(node: Node) -> None:
    assert node.hook("prolog") == 0
    assert "its run is over" in node.said
    assert len(node.requests()) == 1
    assert not node.cache.exists()
    assert not (node.directory / "state").exists()


@pytest.mark.parametrize("node", ["refused 403 node.not_running_here", "refused 503 killed.user"], indirect=True)
def test_another_refusal_is_asked_again(node: Node) -> None:
    assert node.hasty_prolog("ci-bridge run=x") == 0
    assert node.word("1")
    assert len(node.requests()) > 1
    assert not node.cache.exists()


@pytest.mark.parametrize("node", ["no_mutual"], indirect=True)
def test_a_bridge_that_does_not_prove_who_it_is_gets_no_file_written(node: Node) -> None:
    node.write_config(node.config.read_text().split('"')[1])
    assert node.hook("prolog") == 0
    assert "did not prove" in node.said
    assert "did not prove" in node.word()
    assert not node.cache.exists()


@pytest.mark.parametrize(("comment", "ours"), [("ci-bridge run=x", True), ("", False), ("my own job", False)])
def test_without_a_bridge_its_own_jobs_are_refused_and_no_node_is_drained(
    node: Node, comment: str, *, ours: bool
) -> None:
    node.write_config(f"https://localhost:{_free_port()}")
    assert node.hasty_prolog(comment) == 0, node.said
    assert bool(node.word("1")) is ours
    assert not node.cache.exists()
    assert node.hook("epilog", "1") == 0
    assert not node.word("1")


def test_where_no_word_can_be_left_the_prolog_fails(node: Node) -> None:
    (node.directory / "refused").write_text("a file in the way")
    node.write_config(f"https://localhost:{_free_port()}")
    assert node.hasty_prolog("ci-bridge run=x") == 1


@pytest.mark.threat("T20")
@pytest.mark.parametrize("bad", ["tgt", "garbage", "truncated", "empty"])
def test_a_bundle_with_more_or_less_than_service_tickets_is_not_written(node: Node, bad: str) -> None:
    bundle = node.directory / "bundle"
    good = bundle.read_bytes()
    full = (node.realm.directory / "full").read_bytes()
    bundle.write_bytes({"tgt": full, "garbage": b"\x05\x04" + b"x" * 40, "truncated": good[:-3], "empty": b""}[bad])
    assert node.hook("prolog") == 0
    assert "bad ticket cache" in node.word()
    assert not node.cache.exists()
    assert node.leftovers() == []


@pytest.mark.parametrize("name", ["../elsewhere/krb5cc_20007", "krb5cc_0", "../krb5cc_20007", "krb5cc_20008", "x"])
def test_the_bridge_can_not_name_a_file_elsewhere(node: Node, name: str) -> None:
    elsewhere = node.directory / "elsewhere"
    elsewhere.mkdir()
    path = (node.caches / name).resolve() if name.endswith("elsewhere/krb5cc_20007") else node.caches / name
    (node.directory / "cachename").write_text(str(path))
    assert node.hook("prolog") == 0
    assert "outside of cache_directories" in node.word()
    assert not path.exists()
    assert list(elsewhere.iterdir()) == []


def test_no_ticket_is_written_for_a_low_uid(node: Node) -> None:
    assert node.hook("prolog", uid=0) == 0
    assert node.requests() == []


def test_a_config_that_others_may_write_is_refused(node: Node) -> None:
    node.config.chmod(0o666)
    assert node.hook("prolog") == 1
    assert "writable by others" in node.said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(condition: object) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
