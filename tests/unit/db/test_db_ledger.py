"""The ledger's rules: one use of a token, compare-and-set of states, all or nothing."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from ledger_example import NOW, grant, identity, intent, opening, stage
from sqlalchemy import Engine, text

from bridge import grants
from bridge.audit.ledger import Ledger, Opened
from bridge.audit.log import Writer
from bridge.db.engine import LOCK_SECONDS, open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError, Conflict, Defect, NotFound, Outage, TokenRefused
from bridge.model import Identity, RunId, RunState, StageKind, StageState


def open_run(ledger: Ledger, who: Identity | None = None, **changes: object) -> Opened:
    """Admit a job and record it."""
    with ledger.begin() as tx:
        opened = tx.open_run(opening(who, **changes))
        tx.append(intent(who, run_id=opened.run_id))
    return opened


def test_a_run_comes_back_as_it_was_written(ledger: Ledger) -> None:
    opened = open_run(ledger)
    with ledger.read() as view:
        run = view.run(opened.run_id)
        session = view.session(opened.run_id)
        sealed = view.sealed_grant(opened.run_id)
    assert len(opened.run_id) == 26
    assert opened.attempt == 1
    assert run.grant == grant()
    assert (run.state, run.attempt, run.created_at) == (RunState.ADMITTED, 1, NOW)
    assert run.not_after == NOW + timedelta(hours=1)
    assert session.session_hash == b"s" * 32
    assert sealed.grant_json == opened.grant_json == grants.to_json(grant())
    assert sealed.seal == f"{opened.run_id}/1/{len(sealed.grant_json)}".encode()


@pytest.mark.threat("T7")
def test_the_runners_retry_gets_the_same_run_with_a_new_grant_and_session(ledger: Ledger) -> None:
    first = open_run(ledger)
    with ledger.begin() as tx:
        tx.add_stage(stage(first.run_id, name="prepare", kind=StageKind.LOGIN))
        tx.update_run_state(first.run_id, [RunState.ADMITTED], RunState.ENDED)
    second = open_run(ledger, session_hash=b"n" * 32, not_after=NOW + timedelta(hours=2))
    assert (second.run_id, second.attempt) == (first.run_id, 2)
    with ledger.read() as view:
        assert view.session(first.run_id).session_hash == b"n" * 32
        assert view.run(first.run_id).state is RunState.ADMITTED
        assert view.run(first.run_id).not_after == NOW + timedelta(hours=2)
        assert view.sealed_grant(first.run_id).seal.startswith(f"{first.run_id}/2/".encode())
    assert [open_run(ledger).attempt for _ in range(2)] == [3, 4]
    with pytest.raises(TokenRefused):
        open_run(ledger)


@pytest.mark.threat("T7")
@pytest.mark.parametrize("name", ["build_script", "step_release", "after_script"])
def test_no_retry_once_the_users_code_was_submitted(ledger: Ledger, name: str) -> None:
    opened = open_run(ledger)
    with ledger.begin() as tx:
        tx.add_stage(stage(opened.run_id, name=name))
    with pytest.raises(TokenRefused) as caught:
        open_run(ledger)
    assert caught.value.code == "token.replayed"


@pytest.mark.threat("T7")
@pytest.mark.parametrize(
    ("who", "changes"),
    [
        pytest.param(identity(), {"job_token_hash": b"x" * 32}, id="another job token"),
        pytest.param(identity(302, "jti-00301"), {}, id="another job"),
        pytest.param(identity(301, "jti-00302"), {}, id="another token of the job"),
    ],
)
def test_a_used_token_or_job_is_refused_and_leaves_nothing(
    ledger: Ledger, who: Identity, changes: dict[str, object]
) -> None:
    open_run(ledger)
    with pytest.raises(TokenRefused) as caught:
        open_run(ledger, who, **changes)
    assert caught.value.code == "token.replayed"
    with ledger.read() as view:
        assert view.head().tree.size == 1
        assert len(view.live_runs()) == 1


def test_the_same_numbers_at_another_issuer_are_another_job(ledger: Ledger) -> None:
    first = open_run(ledger)
    second = open_run(ledger, replace(identity(), issuer="https://other.realm.test"))
    assert first.run_id != second.run_id


@pytest.mark.threat("T7")
def test_racing_presenters_of_one_token_are_accepted_once(url: str, engine: Engine) -> None:
    ledgers = [SqlLedger(open_database(url), Writer.new(f"broker{number}"), lambda: NOW) for number in range(4)]
    accepted: list[tuple[int, Opened]] = []
    errors: list[str] = []
    start = threading.Barrier(16)

    def present(number: int) -> None:
        for job_id in range(1, 11):
            start.wait(30)
            try:
                # Each racer has a job token of its own, so that nobody is another's retry.
                opened = open_run(ledgers[number % 4], identity(job_id), job_token_hash=bytes([number]) * 32)
                accepted.append((job_id, opened))
            except BridgeError as error:
                errors.append(error.code)

    race(present, 16)
    assert sorted(job_id for job_id, _ in accepted) == list(range(1, 11))
    assert errors == ["token.replayed"] * 150
    with ledgers[0].read() as view:
        assert view.head().tree.size == 10
    for one in ledgers:
        one._writing.dispose()


@pytest.mark.threat("T7")
def test_racing_retries_never_exceed_the_attempts(ledger: Ledger) -> None:
    attempts: list[int] = []

    def present(_: int) -> None:
        try:
            attempts.append(open_run(ledger).attempt)
        except TokenRefused:
            attempts.append(0)

    race(present, 8)
    assert sorted(attempts) == [0, 0, 0, 0, 1, 2, 3, 4]


def race(work: Callable[[int], None], threads: int) -> None:
    """Run the work in that many threads, to the end."""
    runners = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(60)
    assert not any(runner.is_alive() for runner in runners)


@pytest.mark.threat("T7")
@pytest.mark.parametrize(("past_expiry", "forgotten"), [(-1, 0), (0, 0), (30, 0), (90, 0), (3600, 0), (3601, 1)])
def test_used_tokens_are_remembered_until_no_clock_lets_them_in_again(
    ledger: Ledger, engine: Engine, past_expiry: int, forgotten: int
) -> None:
    open_run(ledger)
    then = identity().token_expires_at + timedelta(seconds=past_expiry)
    later = SqlLedger(engine, Writer.new("later"), lambda: then)
    with later.begin() as tx:
        assert tx.forget_tokens() == forgotten
    with pytest.raises(TokenRefused, match=r"token\.replayed"):
        open_run(later, job_token_hash=b"x" * 32)


def test_states_of_runs_are_compared_before_they_are_set(ledger: Ledger) -> None:
    run_id = open_run(ledger).run_id
    with ledger.begin() as tx:
        assert tx.update_run_state(run_id, [RunState.ADMITTED], RunState.PREPARED).state is RunState.PREPARED
    with pytest.raises(Conflict) as caught, ledger.begin() as tx:
        tx.update_run_state(run_id, [RunState.ADMITTED], RunState.PREPARED)
    assert caught.value.code == "run.state"
    with ledger.begin() as tx:
        tx.update_run_state(run_id, list(RunState), RunState.ENDED)
    with ledger.read() as view:
        assert view.live_runs() == []


def test_stages_go_through_their_states_by_compare_and_set(ledger: Ledger) -> None:
    run_id = open_run(ledger).run_id
    one = stage(run_id)
    with ledger.begin() as tx:
        assert tx.add_stage(one) == one
        assert tx.add_stage(one) == one
        held = tx.advance_stage(run_id, one.invocation, [StageState.INTENDED], StageState.HELD, slurm_job_id=4711)
    assert held == replace(one, state=StageState.HELD, slurm_job_id=4711)
    with ledger.begin() as tx:
        tx.advance_stage(run_id, one.invocation, [StageState.HELD], StageState.RUNNING, node="node1")
        tx.advance_stage(run_id, one.invocation, [StageState.RUNNING], StageState.ENDED, exit_code=0)
    with pytest.raises(Conflict) as caught, ledger.begin() as tx:
        tx.advance_stage(run_id, one.invocation, [StageState.RUNNING, StageState.HELD], StageState.CANCELLED)
    assert caught.value.code == "stage.state"
    with ledger.read() as view:
        ended = replace(held, state=StageState.ENDED, node="node1", exit_code=0)
        assert view.stage(run_id, one.invocation) == ended
        run, found = view.run_by_slurm_job("pocket", 4711)
        assert (run.run_id, found) == (run_id, ended)


def test_one_of_many_racers_advances_a_stage(ledger: Ledger) -> None:
    run_id = open_run(ledger).run_id
    with ledger.begin() as tx:
        tx.add_stage(stage(run_id))
    won: list[int] = []

    def advance(number: int) -> None:
        try:
            with ledger.begin() as tx:
                tx.advance_stage(run_id, "a" * 32, [StageState.INTENDED], StageState.HELD, slurm_job_id=number)
                tx.append(intent(run_id=run_id))
            won.append(number)
        except Conflict:
            pass

    race(advance, 8)
    assert len(won) == 1
    with ledger.read() as view:
        assert view.stage(run_id, "a" * 32).slurm_job_id == won[0]
        assert view.head().tree.size == 2


def test_an_invocation_belongs_to_one_stage_of_one_run(ledger: Ledger) -> None:
    mine, other = open_run(ledger).run_id, open_run(ledger, identity(302)).run_id
    with ledger.begin() as tx:
        tx.add_stage(stage(mine))
        tx.add_stage(stage(other))
    with pytest.raises(Conflict) as caught, ledger.begin() as tx:
        tx.add_stage(stage(mine, name="after_script"))
    assert caught.value.code == "stage.invocation"


def test_stages_are_listed_in_the_order_of_their_coming(ledger: Ledger) -> None:
    run_id = open_run(ledger).run_id
    names = ["prepare", "get_sources", "build_script", "after_script"]
    with ledger.begin() as tx:
        for number, name in enumerate(names):
            tx.add_stage(stage(run_id, f"{9 - number}" * 32, name=name))
    with ledger.read() as view:
        assert [one.name for one in view.stages(run_id)] == names


def test_what_is_not_there_is_not_found(ledger: Ledger) -> None:
    run_id = RunId("x" * 26)
    with ledger.read() as view:
        for ask in (view.run, view.session, view.sealed_grant):
            with pytest.raises(NotFound, match=r"run\.unknown"):
                ask(run_id)
        with pytest.raises(NotFound, match=r"stage\.unknown"):
            view.stage(run_id, "a" * 32)
        with pytest.raises(NotFound, match=r"node\.not_ours"):
            view.run_by_slurm_job("pocket", 1)
    with pytest.raises(NotFound), ledger.begin() as tx:
        tx.set_session(run_id, b"x")
    with pytest.raises(NotFound), ledger.begin() as tx:
        tx.add_stage(stage(run_id))


def test_a_session_can_be_replaced(ledger: Ledger) -> None:
    run_id = open_run(ledger).run_id
    with ledger.begin() as tx:
        tx.set_session(run_id, b"new")
    with ledger.read() as view:
        assert view.session(run_id).session_hash == b"new"


def test_an_exception_leaves_nothing_behind(ledger: Ledger) -> None:
    def fail_at_the_end() -> None:
        with ledger.begin() as tx:
            tx.append(intent(run_id=tx.open_run(opening()).run_id))
            tx.run(RunId("unknown"))

    with pytest.raises(NotFound):
        fail_at_the_end()
    with ledger.read() as view:
        assert view.live_runs() == []
        assert view.head().tree.size == 0
    assert open_run(ledger).attempt == 1


def test_a_seal_that_fails_opens_no_run(ledger: Ledger) -> None:
    def broken(run_id: RunId, attempt: int, grant_json: bytes) -> bytes:
        raise Defect("seal.broken", "x", "y")

    with pytest.raises(Defect):
        open_run(ledger, seal=broken)
    with ledger.read() as view:
        assert view.live_runs() == []


@pytest.mark.threat("T42")
def test_a_writer_that_never_ends_makes_others_an_outage_within_seconds(url: str, engine: Engine) -> None:
    one, other = (SqlLedger(open_database(url), Writer.new("x"), lambda: NOW) for _ in range(2))
    with one.begin() as tx:
        tx.append(intent())
        with pytest.raises(Outage) as caught, other.begin():
            pass
    assert caught.value.code == "db.busy"
    with other.begin() as tx:
        assert tx.append(intent()) == 1
    for ledger in (one, other):
        ledger._writing.dispose()


@pytest.mark.threat("T42")
def test_threads_of_one_process_wait_no_longer_than_the_limit(ledger: Ledger) -> None:
    waited: list[str] = []

    def wait() -> None:
        with pytest.raises(Outage) as caught, ledger.begin():
            pass
        waited.append(caught.value.code)

    with ledger.begin():
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(LOCK_SECONDS + 2)
    assert waited == ["db.busy"]


def test_readers_wait_for_no_writer_and_see_one_moment(ledger: Ledger) -> None:
    run_id = open_run(ledger).run_id
    with ledger.read() as view:
        assert view.head().tree.size == 1
        with ledger.begin() as tx:
            tx.append(intent())
            with ledger.read() as beside:
                assert beside.run(run_id).attempt == 1
        assert view.head().tree.size == 1
    with ledger.read() as later:
        assert later.head().tree.size == 2


@pytest.mark.threat("T42")
def test_a_database_that_is_broken_is_an_outage_without_its_text(engine: Engine, ledger: Ledger) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE audit_head"))
    for block in (ledger.begin, ledger.read):
        with pytest.raises(Outage) as caught, block() as tx:
            tx.head()
        assert caught.value.code == "db.unavailable"
        assert "audit_head" not in f"{caught.value}{dict(caught.value.context)}"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "postgresql+psycopg2://x/y"])
def test_only_durable_databases_are_opened(url: str) -> None:
    with pytest.raises(Exception, match=r"(?i)file|unsupported|mysql|psycopg2"):
        open_database(url)
