"""What a job, a node or another person can read: never a token, never a krbtgt, never somebody else's files."""

from __future__ import annotations

import base64
import pickle
import urllib.parse

import pytest

from realm import Realm
from tests.e2e.person import WAIT_FOR_GO, Person


def _spellings(secret: str) -> set[bytes]:
    raw = secret.encode()
    encoded = {base64.b64encode(raw[shift:]).rstrip(b"=")[:-2] for shift in range(3)}
    return {raw, raw.hex().encode(), urllib.parse.quote(secret, safe="").encode(), *encoded}


def _files(realm: Realm, host: str, *folders: str) -> dict[str, bytes]:
    """Every regular file below the folders, as root on that host reads it."""
    script = (
        "import os,sys,pickle\nout={}\n"
        "for top in sys.argv[1:]:\n"
        "  for at,_,names in os.walk(top):\n"
        "    for name in names:\n"
        "      path=os.path.join(at,name)\n"
        "      if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path)<2**24:\n"
        "        out[path]=open(path,'rb').read()\n"
        "sys.stdout.buffer.write(pickle.dumps(out))"
    )
    return dict(pickle.loads(realm.host(host).run(["/usr/bin/python3", "-c", script, *folders]).stdout))


@pytest.mark.threat("T20")
@pytest.mark.threat("T46")
def test_no_file_that_a_job_or_node_sees_holds_a_token_or_a_krbtgt(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO, "echo through", files={"keep.txt": "kept"})
    alice.waits(job)
    tokens = alice.tokens(job)
    needles = set[bytes]()
    for secret in (tokens.job_token, *tokens.id_tokens.values()):
        needles |= _spellings(secret)

    seen: dict[str, bytes] = {}
    for node in ("node1", "node2"):
        folders = ("/builds", "/home", "/tmp", "/var/tmp", "/var/spool", "/run", "/var/log", "/etc")
        seen |= {f"{node}:{path}": data for path, data in _files(realm, node, *folders).items()}
    seen |= {f"login:{path}": data for path, data in _files(realm, "login", "/builds", "/tmp", "/home", "/run").items()}
    alice.go(job)
    assert alice.finished(job).status == "success"

    assert any("/private/build_script.sh" in path for path in seen), "the test looked in the wrong places"
    assert any(path.endswith("/krb5cc_20001") for path in seen), "the node had no tickets"
    found = [path for path, data in seen.items() for needle in needles if needle in data]
    assert found == []
    krbtgt = [path for path, data in seen.items() if "krb5cc" in path and b"krbtgt" in data]
    assert krbtgt == []


@pytest.mark.threat("T46")
def test_no_log_or_database_of_ours_holds_a_token_or_session(realm: Realm, alice: Person) -> None:
    job = alice.push("echo hello")
    tokens = alice.tokens(job)
    assert alice.finished(job).status == "success"

    text = "".join(realm.log(name) for name in ("bridge", "runner")).encode()
    stored = b"".join(_files(realm, "bridge", "/var/lib/ci-bridge").values())
    slurm = realm.host("ctl").run(["sacct", "-a", "-P", "-o", "all"]).stdout
    trace = alice.log(job).encode()
    for secret in (tokens.job_token, *tokens.id_tokens.values()):
        for needle in _spellings(secret):
            assert needle not in text
            assert needle not in stored
            assert needle not in slurm
            assert needle not in trace


def test_another_person_can_not_look_into_a_run(realm: Realm, alice: Person) -> None:
    job = alice.push(WAIT_FOR_GO)
    folder = alice.waits(job).partition("/builds/alice/")[2].partition("/")[0]
    script = f"/builds/alice/{folder}/private/build_script.sh"
    assert realm.host("login").run(["cat", script], user="alice").stdout
    refused = realm.host("login").run(["cat", script], user="bob", check=False)
    cache = "/tmp/krb5cc_ci_20001"
    assert realm.host("login").run(["cat", cache], user="alice").stdout
    tickets = realm.host("login").run(["cat", cache], user="bob", check=False)
    alice.gitlab.cancel_job(job.id)
    alice.finished(job)

    assert refused.returncode != 0
    assert tickets.returncode != 0


@pytest.mark.threat("T21")
def test_web_can_not_read_the_keytabs_and_strangers_can_not_ask_the_broker(realm: Realm) -> None:
    bridge = realm.host("bridge")
    for keytab in ("bridge.keytab", "http.keytab"):
        assert bridge.run(["cat", f"/etc/ci-bridge/{keytab}"], user="ci-bridge", check=False).returncode != 0
    connect = "import socket;s=socket.socket(socket.AF_UNIX);s.connect('/run/ci-bridge/broker.sock')"
    assert bridge.run(["/usr/bin/python3", "-c", connect], user="alice", check=False).returncode != 0
    assert bridge.run(["/usr/bin/python3", "-c", connect], user="ci-bridge", check=False).returncode == 0


@pytest.mark.threat("T27")
def test_memory_of_broker_and_web_is_not_for_others_of_their_user(realm: Realm) -> None:
    bridge = realm.host("bridge")
    listing = bridge.run(["ps", "-eo", "pid,user:20,args"]).stdout.decode().splitlines()
    web = next(line.split()[0] for line in listing if "serve --web-only" in line)
    broker = next(line.split()[0] for line in listing if "broker --listen-fd" in line)

    for pid, user in ((web, "ci-bridge"), (broker, "ci-bridge-broker")):
        assert bridge.run(["cat", f"/proc/{pid}/environ"], user=user, check=False).returncode != 0
        limits = bridge.run(["cat", f"/proc/{pid}/limits"]).stdout.decode().splitlines()
        core = next(line for line in limits if line.startswith("Max core file size"))
        assert core.split()[4:6] == ["0", "0"]
