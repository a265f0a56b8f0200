"""Tickets in a user's collection, in the kernel: put and taken as the user, beside what the person has there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ccache_bytes import cache_bytes
from node_world import UID, Node

from runner.node import collection, collection_child
from runner.node.collection import Collection
from runner.node.place import BadPlace
from tests.keyrings import own_keyring

GID = pwd.getpwuid(UID).pw_gid
RING = f"KEYRING:persistent:{UID}"
OURS = f"{RING}:{collection_child.OUR_NAME}"
SERVICE = "lustre_mds/mds1.test@NODE.TEST"
TGT = "krbtgt/NODE.TEST@NODE.TEST"


@pytest.fixture(autouse=True)
def keyring() -> Iterator[None]:
    with own_keyring(UID):
        yield


class Person:
    """The job's user, with a login shell on the node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.keytab = (node.realm.directory / "nobody.keytab").read_bytes()

    def run(self, *command: str, cache: str = RING) -> subprocess.CompletedProcess[str]:
        """Run a Kerberos tool, with the cache as default; what it reads from files comes by a descriptor."""
        with (self.node.realm.directory / "krb5.conf").open("rb") as config:
            return subprocess.run(
                command,
                env={"PATH": "/usr/bin:/bin", "KRB5CCNAME": cache, "KRB5_CONFIG": f"/proc/self/fd/{config.fileno()}"},
                user=UID,
                group=GID,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                text=True,
                check=False,
                pass_fds=[config.fileno(), *([self._keytab()] if command[0] == "kinit" else [])],
            )

    def kinit(self, cache: str = RING, *options: str) -> None:
        done = self.run("kinit", "-k", "-t", f"/proc/self/fd/{KEYTAB_FD}", *options, "nobody", cache=cache)
        assert done.returncode == 0, done.stderr

    def sees(self, cache: str = RING) -> list[str]:
        """The services of the tickets in the default cache, sorted; empty where there is no cache."""
        return _services(self.run("klist", cache=cache).stdout)

    def all(self) -> dict[str, list[str]]:
        """Every cache of the collection, and its services."""
        parts = self.run("klist", "-A").stdout.split("Ticket cache: ")[1:]
        return {part.split("\n", 1)[0]: _services(part) for part in parts}

    def _keytab(self) -> int:
        descriptor = os.memfd_create("keytab")
        os.write(descriptor, self.keytab)
        os.dup2(descriptor, KEYTAB_FD)
        os.close(descriptor)
        return KEYTAB_FD


KEYTAB_FD = 200


def _services(shown: str) -> list[str]:
    return sorted(line.split()[-1] for line in shown.splitlines() if line[:2].isdigit())


@pytest.fixture
def person(node: Node) -> Person:
    (node.directory / "cachename").write_text(RING)
    with node.config.open("a") as file:
        file.write('cache_collections = ["KEYRING:persistent:%{uid}"]\n')
    return Person(node)


@pytest.mark.threat("T23")
def test_the_users_tools_find_the_tickets_and_after_the_epilog_nothing_is_left(node: Node, person: Person) -> None:
    assert node.hook("prolog") == 0
    assert node.word() == ""
    assert person.sees() == [SERVICE]
    assert node.hook("epilog") == 0
    assert "tickets removed, bridge told" in node.said
    assert person.all() == {}


def test_new_tickets_take_the_place_of_the_old_at_once(node: Node, person: Person) -> None:
    node.hook("prolog", "1")
    (before,) = person.all()
    node.hook("prolog", "2")
    (after,) = person.all()
    assert before != after
    assert person.sees() == [SERVICE]
    node.hook("epilog", "1")
    assert list(person.all()) == [after]
    node.hook("epilog", "2")
    assert person.all() == {}


@pytest.mark.threat("T23")
@pytest.mark.parametrize("own", [f"{RING}:mine", RING], ids=["by a name", "by default"])
def test_a_persons_login_from_before_stays_the_default_and_stays(node: Node, person: Person, own: str) -> None:
    person.kinit(own)
    person.run("kswitch", "-p", "nobody")
    for hook in ("prolog", "prolog", "epilog"):
        assert node.hook(hook) == 0
        assert node.word() == ""
        assert TGT in person.sees()
    assert person.run("kvno", SERVICE).returncode == 0, "their TGT is of no use any more"
    assert len(person.all()) == 1


@pytest.mark.threat("T23")
def test_a_login_that_kinit_put_over_our_tickets_is_the_persons(node: Node, person: Person) -> None:
    node.hook("prolog")
    person.kinit()
    (taken,) = person.all()
    assert taken.startswith(OURS), "kinit took no cache over: this test is about nothing"
    for hook in ("prolog", "epilog"):
        assert node.hook(hook) == 0
        assert TGT in person.sees()
    assert list(person.all()) == [taken]


def test_caches_of_the_person_without_a_login_stay_and_are_the_default_again(node: Node, person: Person) -> None:
    person.kinit(f"{RING}:mine", "-S", SERVICE)
    person.run("kswitch", "-c", f"{RING}:mine")
    node.hook("prolog")
    assert len(person.all()) == 2
    assert person.run("klist").stdout.splitlines()[0].startswith(f"Ticket cache: {OURS}")
    node.hook("epilog")
    assert person.all() == {f"{RING}:mine": [SERVICE]}
    assert person.sees() == [SERVICE]


PLANTED = {
    "a primary that is not there": (
        "keys.add_key(b'user', b'krb_ccache:primary', b'\\0\\0\\0\\1\\0\\0\\0\\4gone', 12, ring)"
    ),
    "a primary that is none": "keys.add_key(b'user', b'krb_ccache:primary', b'x', 1, ring)",
    "an empty cache by our name": "keys.add_key(b'keyring', b'ci_bridge_x', None, 0, ring)",
    "a key by our name": "keys.add_key(b'user', b'ci_bridge_x', b'x', 1, ring)",
    "garbage by our name": (
        "inner = keys.add_key(b'keyring', b'ci_bridge_x', None, 0, ring);"
        "keys.add_key(b'user', b'__krb5_princ__', b'garbage', 7, inner);"
        "keys.add_key(b'user', b'krbtgt/NODE.TEST@NODE.TEST', b'garbage', 7, inner)"
    ),
}
PLANT = """
import ctypes
keys = ctypes.CDLL("libkeyutils.so.1")
ring = keys.keyctl_get_persistent(-1, -2)
ring = keys.add_key(b"keyring", b"_krb", None, 0, ring)
"""


@pytest.mark.threat("T35")
@pytest.mark.parametrize("planted", PLANTED)
def test_what_a_user_plants_in_the_collection_keeps_no_ticket_there(node: Node, person: Person, planted: str) -> None:
    assert person.run("/usr/bin/python3", "-c", PLANT + PLANTED[planted]).returncode == 0
    node.hook("prolog")
    assert node.word() == ""
    assert person.sees() == [SERVICE]
    node.hook("epilog")
    assert "tickets removed" in node.said
    assert person.all() == {}


@pytest.mark.threat("T35")
@pytest.mark.parametrize(
    "name",
    [
        "KEYRING:persistent:0",
        f"KEYRING:persistent:{UID}:mine",
        f"KEYRING:persistent:0{UID}",
        "KEYRING:persistent:",
        f"KEYRING:user:{UID}",
        "KEYRING:session:x",
        f"KEYRING:{UID}",
        f"KCM:{UID}",
        "KCM:0",
        "KCM:",
        f"MEMORY:{UID}",
    ],
)
def test_the_bridge_can_not_have_another_collection_written(node: Node, person: Person, name: str) -> None:
    (node.directory / "cachename").write_text(name)
    node.hook("prolog")
    assert "outside of" in node.word()
    assert person.all() == {}


def test_nothing_is_written_to_a_collection_unless_the_site_says_so(node: Node, person: Person) -> None:
    node.config.write_text(node.config.read_text().replace("cache_collections", "# cache_collections"))
    node.hook("prolog")
    assert "outside of cache_collections" in node.word()
    assert person.all() == {}


@pytest.mark.parametrize("entry", ["KEYRING:persistent:0", "KEYRING:user:%{uid}", "KCM:", "/tmp"])
def test_a_site_can_allow_only_what_is_the_users(node: Node, entry: str) -> None:
    with node.config.open("a") as file:
        file.write(f'cache_collections = ["{entry}"]\n')
    assert node.hook("prolog") == 1
    assert "cache_collections may hold" in node.said


def test_what_could_not_be_removed_is_tried_again(node: Node, person: Person) -> None:
    node.hook("prolog")
    allowed = node.config.read_text()
    node.config.write_text(allowed.replace("cache_collections", "# cache_collections"))
    assert node.hook("epilog") == 0
    assert "bridge told" not in node.said
    node.config.write_text(allowed)
    node.slurm()
    assert "removed" in node.refresh()
    assert person.all() == {}


def test_tickets_that_have_ended_keep_nobody_busy(node: Node, person: Person) -> None:
    node.hook("prolog")
    node.marker(end=1.0)
    node.config.write_text(node.config.read_text().replace("cache_collections", "# cache_collections"))
    node.slurm()
    assert "stays" in node.refresh()
    assert node.refresh() == ""
    assert [request for request in node.requests() if request.get("path") == "/v1/node/released"] == []


@pytest.mark.threat("T35")
def test_more_than_the_users_quota_is_refused_and_the_old_tickets_stay_whole(person: Person) -> None:
    place = Collection(RING, ["KEYRING:persistent:%{uid}"], UID)
    place.write(cache_bytes("nobody", services=2))
    before = person.all()
    with pytest.raises(BadPlace, match="quota"):
        place.write(cache_bytes("nobody", services=250))
    assert person.all() == before
    assert place.remove()
    assert not place.remove()


@pytest.mark.threat("T22")
@pytest.mark.parametrize("extra", ["tgt", "configuration"])
def test_the_child_puts_no_tgt_and_no_configuration_even_if_told_to(person: Person, extra: str) -> None:
    with pytest.raises(BadPlace, match="reads otherwise"):
        Collection(RING, ["KEYRING:persistent:%{uid}"], UID).write(cache_bytes("nobody", services=1, extra=extra))
    assert person.all() == {}


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "CHILD_SECONDS", 0.001)
    with pytest.raises(BadPlace, match="TimeoutExpired"):
        Collection(RING, ["KEYRING:persistent:%{uid}"], UID).write(cache_bytes("nobody", services=1))
    assert not _children_at(RING)


def _children_at(name: str) -> list[Path]:
    """The processes of ours that have the name among their arguments."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            ours = f"PPid:\t{os.getpid()}\n" in status.read_text()
            if ours and name.encode() in status.with_name("cmdline").read_bytes():
                found.append(status)
    return found


NOT_QUITE = {
    "root": {},
    "root's groups": {"user": UID, "group": GID},
    "another gid": {"user": UID, "group": GID + 1, "extra_groups": []},
    "another uid": {"user": UID + 1, "group": GID, "extra_groups": []},
    "a group more": {"user": UID, "group": GID, "extra_groups": [4]},
}


@pytest.mark.threat("T35")
@pytest.mark.parametrize("who", NOT_QUITE)
def test_nothing_is_written_by_who_is_not_quite_the_user(who: str) -> None:
    program = Path(collection_child.__file__).read_text()
    command = [sys.executable, "-I", "-S", "-c", program, "put", RING, str(UID), str(GID)]
    # So that there are groups to be left over, whoever runs the tests.
    groups = os.getgroups()
    os.setgroups([4])
    try:
        done = subprocess.run(command, input=cache_bytes("nobody", services=1), cwd="/", check=False, **NOT_QUITE[who])  # type: ignore[call-overload]
    finally:
        os.setgroups(groups)
    assert done.returncode == collection_child.NOT_THE_USER


SPY = """
import ctypes, sys
keys = ctypes.CDLL("libkeyutils.so.1")
sys.exit(0 if keys.keyctl_search(-3, b"user", b"ci-bridge-canary", 0) > 0 else 1)
"""


@pytest.mark.threat("T35")
def test_the_users_child_does_not_share_the_session_keyring_of_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spy = tmp_path / "spy.py"
    spy.write_text(SPY)
    monkeypatch.setattr(collection_child, "__file__", str(spy))
    keys = ctypes.CDLL("libkeyutils.so.1")
    # This process's own from here on: nothing is put into what it has from whoever started it.
    assert keys.keyctl_join_session_keyring(None) > 0
    canary = keys.add_key(b"user", b"ci-bridge-canary", b"x", 1, _SESSION_KEYRING)
    assert canary > 0
    assert not Collection(RING, ["KEYRING:persistent:%{uid}"], UID).remove()
    assert keys.keyctl_search(_SESSION_KEYRING, b"user", b"ci-bridge-canary", 0) == canary


_SESSION_KEYRING = -3
"""KEY_SPEC_SESSION_KEYRING, keyctl(2)."""
