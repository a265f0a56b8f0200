"""What a connection still does when the tickets that made it have ended, and how the work moves to the next one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bridge_side import BridgeSide, bridge_side

from bridge.cluster.login import LoginSession
from bridge.cluster.opening import LoginOpener
from bridge.cluster.pool import Lease, LoginPool
from bridge.cluster.ssh import HostKeys
from bridge.errors import Outage, PolicyRefused
from bridge.kerberos.holding import hold
from bridge.model import TicketBundle
from realm import Realm


class Run:
    """A run of alice's with a lease on the connection, whose tickets a test lets end."""

    def __init__(self, side: BridgeSide) -> None:
        addresses = {"login.realm.test": side.realm.host("login").address}
        self.side = side
        self.fetched = 0
        self.allowed = True
        self.pool = LoginPool(LoginOpener(hold, HostKeys(side.known_hosts), addresses=addresses))
        self.lease: Lease = self.pool.lease(side.cluster, "alice", self.tickets)

    def tickets(self) -> TicketBundle:
        if not self.allowed:
            raise PolicyRefused("run.over_time", "t", "r")
        self.fetched += 1
        return self.side.tickets()

    @property
    def session(self) -> LoginSession:
        node = self.lease.node
        assert isinstance(node, LoginSession)
        return node

    def let_them_end(self) -> None:
        """As if the tickets' life had passed: for the pool, and for the connection itself."""
        now, slot = datetime.now(UTC), self.pool._slots["pocket", "alice"]
        assert isinstance(slot.session, LoginSession)
        slot.retire_at = now
        slot.session._connection._ends = now


@pytest.fixture
def run(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        made = Run(side)
        yield made
        made.pool.close()


@pytest.mark.threat("T33")
def test_nothing_new_is_done_over_it_and_what_runs_comes_to_its_end(run: Run) -> None:
    login = run.side.realm.host("login")
    login.run(["/usr/bin/mkfifo", "-m", "666", "/home/ended-gate"])
    old = run.session
    script = old.run(b"echo begun; read -r _ < /home/ended-gate; echo done", env={})
    output = iter(script)
    run.let_them_end()
    for act in (
        lambda: old.run(b"true", env={}),
        lambda: old.submit(["--version"]),
        lambda: old.find("ci-x"),
        lambda: old.follow("/builds/x", 0),
    ):
        with pytest.raises(Outage, match=r"login\.tickets_ended"):
            act()
    new = run.session
    assert new is not old
    assert run.fetched == 2
    assert new.hello().user == "alice"
    run.pool.sweep()
    assert old.alive, "a script still runs on it"
    login.run(["/bin/sh", "-c", "echo go > /home/ended-gate"])
    assert b"".join(output) == b"begun\ndone\n"
    run.pool.sweep()
    assert not old.alive
    assert new.alive
    login.run(["/bin/rm", "/home/ended-gate"])


@pytest.mark.threat("T33")
def test_a_run_that_is_not_allowed_any_more_gets_no_new_connection(run: Run) -> None:
    assert run.session.hello().user == "alice"
    run.let_them_end()
    run.allowed = False
    with pytest.raises(PolicyRefused, match=r"run\.over_time"):
        _ = run.lease.node


def test_a_script_that_runs_may_still_be_stopped(run: Run) -> None:
    script = run.session.run(b"echo begun; exec sleep 60", env={})
    output = iter(script)
    assert next(output) == b"begun\n"
    run.let_them_end()
    script.stop(1.0)
    assert list(output) == []
    assert script.exit.signal == 15
