"""A stage that lasts on the login node has good tickets for as long as its run may go on, and no longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from bench import Broker, Clock, Reader, Web, wait_until
from test_kills import kill

from bridge.errors import Outage, PolicyRefused
from bridge.runs.live_run import LiveRun
from bridge.runs.login_refresh import LoginRefresh
from tests.fakes import FakeCluster, FakeScript

ONE, TWO = "1" * 32, "2" * 32
CACHE = "FILE:/tmp/krb5cc_ci_20001"
DUE, DUE_AGAIN = timedelta(minutes=125), timedelta(minutes=170)
"""After which tickets of three hours are renewed, and those again that are got at the first of them."""
DOWN = Outage("kdc.unreachable", "The KDC does not answer.", "Wait.")


@dataclass(frozen=True, slots=True)
class AtWork:
    """A run with a script on the login node that goes on until ``gate``, and the clock by which its tickets end."""

    live: LiveRun
    reader: Reader
    gate: threading.Event
    clock: Clock


Begin = Callable[[LiveRun], AtWork]


@pytest.fixture
def begin(web: Web, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Have a script of a run at work."""
    begun: list[AtWork] = []

    def begin(live: LiveRun) -> AtWork:
        clock, gate = Clock(), threading.Event()
        monkeypatch.setattr(live.login_tickets, "_clock", clock)
        cluster.scripts.append(FakeScript(gate=gate))
        reader = Reader(web.runs.start_stage(live, ONE, "get_sources", b"git fetch"))
        begun.append(AtWork(live, reader, gate, clock))
        reader.until(lambda: reader.log, "the script")
        return begun[-1]

    yield begin
    for one in begun:
        one.gate.set()


@pytest.fixture
def work(begin: Begin, live: LiveRun) -> AtWork:
    """Alice's."""
    return begin(live)


@pytest.fixture
def refresh(web: Web) -> Iterator[LoginRefresh]:
    """What renews; its own thread does not run."""
    refresh = LoginRefresh(web.runs, every_seconds=3600, retry_seconds=0)
    refresh.start()
    yield refresh
    refresh.stop()
    wait_until(lambda: not refresh._under_way)


@pytest.fixture
def held_up(broker: Broker) -> Iterator[threading.Event]:
    """The KDC answers nobody before this."""
    gate = threading.Event()
    broker.impersonator.before = lambda: (gate.wait(10), None)[1]
    yield gate
    gate.set()


def puts(cluster: FakeCluster) -> int:
    """How often tickets were put on the login node."""
    return len(cluster.called("put_tickets"))


def phases(broker: Broker) -> list[str]:
    """What is on record of tickets for the login node."""
    return [one["phase"] for one in broker.records(type="tickets") if one["detail"].get("use") == "login"]


def test_they_are_renewed_as_often_as_it_takes_and_each_time_is_on_record(
    broker: Broker, cluster: FakeCluster, refresh: LoginRefresh, work: AtWork
) -> None:
    assert refresh.look() == 0, "fresh ones were renewed"
    for number, shift in enumerate((DUE, DUE_AGAIN), 2):
        work.clock.shift = shift
        assert refresh.look() == 1
        wait_until(lambda number=number: puts(cluster) == number, "a renewal")  # type: ignore[misc]
        wait_until(lambda: not refresh._under_way)
        assert refresh.look() == 0, "renewed ones were renewed again"
    assert phases(broker) == ["intent", "ok"] * 3
    assert all(targets[0].startswith("lustre_mds/") for _, targets, _ in broker.impersonator.asked[1:])
    work.gate.set()
    assert work.reader.end()["outcome"] == "ok"
    assert work.reader.notes == []


def test_a_thread_of_its_own_looks(web: Web, cluster: FakeCluster, work: AtWork) -> None:
    refresh = LoginRefresh(web.runs, every_seconds=0.01)
    refresh.start()
    try:
        work.clock.shift = DUE
        wait_until(lambda: puts(cluster) == 2, "a renewal")
    finally:
        refresh.stop()


def _time_out(broker: Broker) -> None:
    broker.clock.shift = timedelta(hours=2)


@pytest.mark.threat("T16")
@pytest.mark.threat("T23")
@pytest.mark.parametrize(("refuse", "code"), [(kill, "killed.user"), (_time_out, "run.over_time")])
def test_a_run_that_may_have_no_more_keeps_what_ends_by_itself_and_hears_of_it_once(
    broker: Broker,
    cluster: FakeCluster,
    refresh: LoginRefresh,
    work: AtWork,
    refuse: Callable[[Broker], None],
    code: str,
) -> None:
    refuse(broker)
    work.clock.shift = DUE
    assert refresh.look() == 1
    work.reader.until(lambda: work.reader.notes, "the note")
    wait_until(lambda: not refresh._under_way)
    work.clock.shift = DUE_AGAIN
    assert refresh.look() == 0, "asked again"
    assert puts(cluster) == 1
    work.gate.set()
    assert work.reader.end()["outcome"] == "ok"
    (note,) = work.reader.notes
    assert note.startswith("Tickets on login.realm.test end at ")
    assert code in note
    assert len(broker.impersonator.asked) == 2
    # That a run is over time follows from its own record.
    denials = [code] if code == "killed.user" else []
    assert [one["code"] for one in broker.records(type="tickets", phase="denied")] == denials


def _condemned(web: Web, work: AtWork, _: FakeCluster) -> None:
    web.runs.condemn(work.live, PolicyRefused("killed.user", "t", "r"))


def _cancelled(_: Web, work: AtWork, __: FakeCluster) -> None:
    assert work.reader.task is not None
    work.reader.task.cancel()


def _ended(_: Web, work: AtWork, __: FakeCluster) -> None:
    work.gate.set()
    assert work.reader.task is not None
    assert work.reader.task.wait(10)


def _cut_off(_: Web, work: AtWork, cluster: FakeCluster) -> None:
    cluster.cut()
    assert work.reader.task is not None
    assert work.reader.task.wait(10)


def _ending(_: Web, work: AtWork, __: FakeCluster) -> None:
    work.live.ending = True


@pytest.mark.threat("T23")
@pytest.mark.parametrize("end", [_condemned, _ending, _cancelled, _ended, _cut_off])
def test_nothing_is_put_where_nothing_may_go_on(
    web: Web,
    cluster: FakeCluster,
    refresh: LoginRefresh,
    work: AtWork,
    end: Callable[[Web, AtWork, FakeCluster], None],
) -> None:
    end(web, work, cluster)
    work.clock.shift = DUE
    assert refresh.look() == 0


@pytest.mark.threat("T23")
def test_the_end_of_a_run_waits_for_what_is_being_put_and_removes_it(
    web: Web, broker: Broker, cluster: FakeCluster, refresh: LoginRefresh, work: AtWork, held_up: threading.Event
) -> None:
    work.clock.shift = DUE
    assert refresh.look() == 1
    wait_until(lambda: phases(broker)[-1] == "intent", "the renewal")
    ending = threading.Thread(target=web.runs.finish, args=(work.live,))
    ending.start()
    work.reader.end()
    ending.join(0.3)  # the time to do it too early
    held_up.set()
    ending.join(10)
    assert not ending.is_alive()
    wait_until(lambda: not refresh._under_way)
    assert [verb for verb, _ in cluster.calls if verb in ("put_tickets", "destroy")][-1] == "destroy"
    assert CACHE not in cluster.files


@pytest.mark.threat("T24")
def test_an_outage_leaves_the_old_ones_and_is_over_at_a_later_look(
    broker: Broker, cluster: FakeCluster, refresh: LoginRefresh, work: AtWork
) -> None:
    before = bytes(cluster.files[CACHE])
    work.clock.shift, broker.impersonator.error = DUE, DOWN
    assert refresh.look() == 1
    wait_until(lambda: not refresh._under_way)
    assert (puts(cluster), bytes(cluster.files[CACHE])) == (1, before)
    broker.impersonator.error = None
    assert refresh.look() == 1
    wait_until(lambda: puts(cluster) == 2, "a renewal")
    assert phases(broker) == ["intent", "ok", "intent", "failed", "intent", "ok"]
    work.gate.set()
    assert work.reader.end()["outcome"] == "ok"
    assert work.reader.notes == []


@pytest.mark.threat("T24")
def test_a_kdc_that_is_away_is_not_asked_at_every_look(web: Web, broker: Broker, work: AtWork) -> None:
    refresh = LoginRefresh(web.runs, every_seconds=3600)
    refresh.start()
    try:
        work.clock.shift, broker.impersonator.error = DUE, DOWN
        assert refresh.look() == 1
        wait_until(lambda: not refresh._under_way)
        assert refresh.look() == 0
    finally:
        refresh.stop()


def test_a_login_of_the_persons_that_came_meanwhile_stays_and_is_on_record(
    broker: Broker, cluster: FakeCluster, refresh: LoginRefresh, work: AtWork
) -> None:
    before = bytes(cluster.files[CACHE])
    cluster.login_until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=9)
    work.clock.shift = DUE
    assert refresh.look() == 1
    (record,) = wait_until(lambda: broker.records(type="run", phase="event"), "the record")
    assert record["detail"]["own_login_until"] == f"{cluster.login_until:%Y-%m-%dT%H:%M:%SZ}"
    assert bytes(cluster.files[CACHE]) == before


def test_who_waits_does_not_hold_up_the_others_and_an_account_is_served_by_one(
    web: Web,
    broker: Broker,
    cluster: FakeCluster,
    refresh: LoginRefresh,
    begin: Begin,
    work: AtWork,
    held_up: threading.Event,
) -> None:
    work.clock.shift = DUE
    assert refresh.look() == 1
    wait_until(lambda: len(broker.impersonator.asked) == 3, "the renewal")
    broker.impersonator.before = lambda: None
    again, other = begin(web.open(broker.evidence(302))), begin(web.open(broker.evidence(303, 102)))
    assert puts(cluster) == 3
    again.clock.shift = other.clock.shift = DUE
    assert refresh.look() == 1, "one account was served twice at once, or bob not at all"
    wait_until(lambda: puts(cluster) == 4, "bob's renewal")
    assert not held_up.is_set()
    held_up.set()
    wait_until(lambda: not refresh._under_way)
    assert refresh.look() == 1
    wait_until(lambda: puts(cluster) == 6, "the others'")


def test_a_cluster_that_hangs_does_not_take_every_worker(
    web: Web,
    broker: Broker,
    refresh: LoginRefresh,
    begin: Begin,
    work: AtWork,
    held_up: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.runs.login_refresh.AT_ONCE_ON_A_CLUSTER", 1)
    work.clock.shift = DUE
    assert refresh.look() == 1
    wait_until(lambda: len(broker.impersonator.asked) == 3, "the renewal")
    broker.impersonator.before = lambda: None
    begin(web.open(broker.evidence(303, 102))).clock.shift = DUE
    assert refresh.look() == 0
    held_up.set()
    wait_until(lambda: not refresh._under_way)
    assert refresh.look() == 1
