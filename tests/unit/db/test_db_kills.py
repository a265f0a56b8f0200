"""Kill switches in the ledger: in force from commit to lifting, on record, and heard by whoever commits later."""

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ledger_example import NOW, grant, identity, intent, opening
from sqlalchemy import Engine

from bridge.audit import kills
from bridge.audit.ledger import Ledger
from bridge.audit.log import Writer, verify
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError, Conflict, NotFound, PolicyRefused
from bridge.model import KillScope, KillSwitch
from bridge.people.acts import Acts
from bridge.people.callers import Caller
from bridge.people.kill_switches import KillDesk
from bridge.policy.roles import Role
from bridge.seal import Seal
from bridge.sealed import RevisionMark, SealedRegister
from bridge.standing import require_standing

GITLAB = "https://gitlab.realm.test"
OTHER = "https://other.realm.test"


def switch(scope: KillScope = KillScope.USER, switch_id: str = "AAAA-BBBB-CCCC", **target: Any) -> KillSwitch:
    """A switch for alice, unless told otherwise."""
    if scope is KillScope.USER and not target:
        target = {"issuer": GITLAB, "number": 101}
    members = {"issuer": None, "number": None, "account": None} | target
    return KillSwitch(switch_id, scope, reason="stolen laptop", actor="root(0)", created_at=NOW, **members)


def throw(ledger: Ledger, wanted: KillSwitch) -> KillSwitch:
    """Put the very switch in force."""
    with sealed(ledger) as register, register.begin() as (tx, _):
        in_force = tx.kill(wanted)
        if in_force is wanted:
            tx.append(kills.record(wanted, "thrown", wanted.actor, wanted.reason))
    return in_force


def lift(ledger: Ledger, switch_id: str, actor: str, reason: str) -> KillSwitch:
    """Lift it, as an operator."""
    with sealed(ledger) as register:
        desk = KillDesk(register, Acts(ledger), frozenset({GITLAB}), lambda: NOW)
        return desk.lift(Caller(actor, None, frozenset({Role.OPERATOR}), bound=True), switch_id, reason)


@contextmanager
def sealed(ledger: Ledger) -> Iterator[SealedRegister]:
    """The register of the ledger as a broker that has just started has it."""
    with tempfile.TemporaryDirectory() as directory:
        yield SealedRegister(ledger, Seal(b"k" * 32), RevisionMark(Path(directory) / "register-head"))


def test_a_switch_comes_back_as_it_was_thrown_until_it_is_lifted(ledger: Ledger) -> None:
    throw(ledger, switch())
    with ledger.read() as view:
        assert view.kill_switches() == [switch()]
    lifted = lift(ledger, "AAAA-BBBB-CCCC", "bob(1000)", "found again")
    assert (lifted.lifted_at, lifted.lifted_by) == (NOW, "bob(1000)")
    with ledger.read() as view:
        assert view.kill_switches() == []
        assert view.kill_switches(active=False) == [lifted]


def test_throwing_and_lifting_are_on_record_under_the_switchs_id(ledger: Ledger) -> None:
    throw(ledger, switch())
    lift(ledger, "AAAA-BBBB-CCCC", "bob(1000)", "found again")
    with ledger.read() as view:
        thrown, lifted = [json.loads(one.leaf) for one in view.timeline(reference="AAAA-BBBB-CCCC")]
        assert verify(view.entries, view.head()).ok
    target = {"scope": "user", "issuer": GITLAB, "number": 101}
    assert (thrown["type"], thrown["phase"]) == (lifted["type"], lifted["phase"]) == ("kill", "ok")
    assert thrown["detail"] == {"act": "thrown", "by": "root(0)", "reason": "stolen laptop"} | target
    said = {"act": "lifted", "by": "bob(1000)", "method": "socket", "reason": "found again"}
    assert lifted["detail"] == said | target


def test_the_same_switch_again_is_the_one_that_is_in_force(ledger: Ledger) -> None:
    first = throw(ledger, switch())
    again = throw(ledger, switch(switch_id="DDDD-DDDD-DDDD"))
    assert again == first
    lift(ledger, first.switch_id, "bob(1000)", "found again")
    assert throw(ledger, switch(switch_id="DDDD-DDDD-DDDD")).switch_id == "DDDD-DDDD-DDDD"


def test_a_switch_that_is_not_there_or_lifted_already_is_refused(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match=r"kill\.unknown"):
        lift(ledger, "NONE", "bob(1000)", "why")
    throw(ledger, switch())
    lift(ledger, "AAAA-BBBB-CCCC", "bob(1000)", "why")
    with pytest.raises(Conflict, match=r"kill\.lifted"):
        lift(ledger, "AAAA-BBBB-CCCC", "bob(1000)", "why")
    with ledger.read() as view:
        phases = [one.index.phase for one in view.entries()]
    assert phases == ["denied", "ok", "ok", "denied"]


@pytest.mark.threat("T16")
@pytest.mark.parametrize(
    ("scope", "target", "hit"),
    [
        (KillScope.USER, {"issuer": GITLAB, "number": 101}, True),
        (KillScope.USER, {"issuer": GITLAB, "number": 102}, False),
        (KillScope.USER, {"issuer": OTHER, "number": 101}, False),
        (KillScope.ACCOUNT, {"account": "alice"}, True),
        (KillScope.ACCOUNT, {"account": "alic"}, False),
        (KillScope.PROJECT, {"issuer": GITLAB, "number": 7}, True),
        (KillScope.PROJECT, {"issuer": GITLAB, "number": 8}, True),
        (KillScope.PROJECT, {"issuer": GITLAB, "number": 9}, False),
        (KillScope.PROJECT, {"issuer": OTHER, "number": 7}, False),
        (KillScope.RUNNER, {"issuer": GITLAB, "number": 1}, True),
        (KillScope.RUNNER, {"issuer": GITLAB, "number": 7}, False),
        (KillScope.RUNNER, {"issuer": OTHER, "number": 1}, False),
        (KillScope.ISSUER, {"issuer": GITLAB}, True),
        (KillScope.ISSUER, {"issuer": OTHER}, False),
        (KillScope.ALL, {}, True),
    ],
)
def test_a_switch_stops_what_it_names_and_nothing_else(
    ledger: Ledger, scope: KillScope, target: dict[str, Any], *, hit: bool
) -> None:
    throw(ledger, switch(scope, **target))
    alices = grant(identity(project_id=7, job_project_id=8))
    with ledger.read() as view:
        if not hit:
            require_standing(view.register(), alices)
            return
        with pytest.raises(PolicyRefused) as caught:
            require_standing(view.register(), alices)
    assert caught.value.code == f"killed.{scope.value}"
    assert dict(caught.value.context) == {"switch": "AAAA-BBBB-CCCC"}
    assert "stolen laptop" not in f"{caught.value} {caught.value.title} {caught.value.remedy}"


@pytest.mark.threat("T48")
def test_a_run_is_opened_before_the_switch_or_not_at_all(url: str, engine: Engine) -> None:
    """Racing admissions and one switch: in the log no intent stands behind it."""
    ledgers = [SqlLedger(open_database(url), Writer.new(f"broker{number}"), lambda: NOW) for number in range(3)]
    start, refused = threading.Barrier(4), []

    def admit(number: int) -> None:
        start.wait(30)
        for step in range(20):
            who = identity(1000 * number + step + 1)
            try:
                with ledgers[number].begin() as tx:
                    require_standing(tx.register(), grant(who))
                    opened = tx.open_run(opening(who, not_after=NOW + timedelta(hours=1)))
                    tx.append(intent(who, run_id=opened.run_id))
            except BridgeError as error:
                refused.append(error.code)

    threads = [threading.Thread(target=admit, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    own = SqlLedger(engine, Writer.new("ci-bridge kill"), lambda: NOW)
    start.wait(30)
    throw(own, switch())
    for thread in threads:
        thread.join(60)
    with own.read() as view:
        kinds = [one.index.type for one in view.entries()]
        live = len(view.live_runs())
    assert kinds[-1] == "kill"
    assert live == len(kinds) - 1
    assert refused == ["killed.user"] * (60 - live)
    for ledger in ledgers:
        ledger._writing.dispose()
