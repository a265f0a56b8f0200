"""One use of a token, however many present it to however many brokers, and whoever is killed meanwhile (T7)."""

from __future__ import annotations

import json
import random
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from benchmarks.main_job import Jobs, Pinned
from bridge.audit.log import Writer, verify
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError, Outage
from bridge.oidc.replay import MAX_ATTEMPTS
from realm import Realm, bridgehost, forge, tls
from realm.workspace import CHECKOUT
from tests.identity.brokers import Broker, recorded_runs

JOBS = 300
PROCESSES = 4
KILLS = 6

TOKENS = 40
PRESENTERS = 8


def presenter(url: str, name: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.identity.foreign_presenter", url, name, str(JOBS)]
    return subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


@pytest.mark.threat("T7")
def test_foreign_presenters_in_many_processes_open_one_run_each_though_some_are_killed(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    chance = random.Random(7)
    running = [presenter(url, f"first-{number}") for number in range(PROCESSES)]
    said: list[str] = []
    for number in range(KILLS):
        wait_for_runs(engine, (number + 1) * JOBS // (KILLS + 2))
        victim = running.pop(chance.randrange(len(running)))
        victim.kill()
        said += victim.communicate(timeout=60)[0].splitlines(keepends=True)
        running.append(presenter(url, f"later-{number}"))
    for one in running:
        said += one.communicate(timeout=90)[0].splitlines(keepends=True)

    answers: dict[int, Counter[str]] = defaultdict(Counter)
    for line in said:
        if line.endswith("\n"):
            job_id, answer = line.split()
            answers[int(job_id)][answer] += 1
    assert all(counts["accepted"] <= 1 for counts in answers.values())
    assert {answer for counts in answers.values() for answer in counts} == {"accepted", "token.replayed"}
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT job_id, attempt FROM runs ORDER BY job_id")).all()
        uses = connection.execute(text("SELECT count(*) FROM token_uses")).scalar_one()
    assert [tuple(row) for row in rows] == [(job_id, 1) for job_id in range(1, JOBS + 1)]
    assert uses == JOBS
    with SqlLedger(engine, Writer.new("reader")).read() as view:
        assert view.head().tree.size == JOBS
        assert verify(view.entries, view.head()).ok


def wait_for_runs(engine: Engine, wanted: int) -> None:
    """Wait until so many runs are on record."""
    deadline, pause = time.monotonic() + 60, threading.Event()
    while time.monotonic() < deadline:
        with engine.connect() as connection:
            if connection.execute(text("SELECT count(*) FROM runs")).scalar_one() >= wanted:
                return
        pause.wait(0.01)
    pytest.fail(f"fewer than {wanted} runs after a minute")


@pytest.fixture
def brokers(realm: Realm) -> Iterator[list[Broker]]:
    started: list[Broker] = []
    try:
        for number in range(3):
            started.append(Broker(realm, number))
        yield started
    finally:
        for broker in started:
            broker.close()


@pytest.fixture
def evidence(realm: Realm) -> Iterator[list[dict[str, Any]]]:
    """Running jobs of alice, with all that their runner knows."""
    context = ssl.create_default_context(cadata=realm.host("runner").read(tls.CA_PATH).decode())
    jobs = Jobs(realm, TOKENS, "alice", "chem/race")
    try:
        with realm.host("runner").network(), Pinned(realm, {forge.URL: "gitlab"}, context) as client:
            taken = [jobs.take(client) for _ in range(TOKENS)]
        yield [one | {"scheduler_parameters": "", "cluster": None} for one in taken]
    finally:
        jobs.close()


@pytest.mark.threat("T7")
def test_racing_presenters_at_brokers_that_are_killed_get_one_run_and_the_runners_few_attempts(
    realm: Realm, brokers: list[Broker], evidence: list[dict[str, Any]]
) -> None:
    accepted: dict[int, list[tuple[str, int]]] = defaultdict(list)
    refused: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    done = threading.Event()
    start = threading.Barrier(PRESENTERS)

    def present(number: int) -> None:
        chance = random.Random(number)
        for one in evidence:
            start.wait(60)
            for _ in range(100):
                try:
                    reply = chance.choice(brokers).ask("admit", evidence=one)
                except Outage as error:
                    lost[error.code] += 1
                    done.wait(0.05)
                except BridgeError as error:
                    refused[error.code] += 1
                    break
                else:
                    accepted[one["facts"]["job_id"]].append((reply["run_id"], reply["attempt"]))
                    break

    def kill() -> None:
        chance = random.Random(1)
        while not done.wait(0.3):
            chance.choice(brokers).kill_and_restart()

    killer = threading.Thread(target=kill)
    threads = [threading.Thread(target=present, args=(number,)) for number in range(PRESENTERS)]
    for thread in [killer, *threads]:
        thread.start()
    for thread in threads:
        thread.join(120)
    done.set()
    killer.join(90)

    assert not any(thread.is_alive() for thread in threads)
    assert lost["broker.unreachable"] > 0, "nobody was killed in the middle"
    assert set(refused) == {"token.replayed"}
    jobs = {one["facts"]["job_id"] for one in evidence}
    rows = [row for row in recorded_runs(realm) if row["job_id"] in jobs]
    recorded = {row["job_id"]: (row["run_id"], row["attempt"]) for row in rows}
    assert len(rows) == len(recorded) == TOKENS
    for job_id, replies in accepted.items():
        run_id, attempts = recorded[job_id]
        assert {one for one, _ in replies} == {run_id}
        numbers = [number for _, number in replies]
        assert len(set(numbers)) == len(numbers)
        assert max(numbers) <= attempts <= MAX_ATTEMPTS
    report = json.loads(bridgehost.ci_bridge(realm, "audit", "verify", "--json"))
    assert report["ok"] is True
