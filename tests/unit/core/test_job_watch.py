"""While a run lives, GitLab is asked whether its job does; its silence by itself ends nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
from bench import ISSUER, Broker, Reader, Web, refused, wait_until
from web_example import in_process, make_parts, problem

from bridge.broker.client import BrokerClient
from bridge.errors import BridgeError, Outage
from bridge.model import RunState
from bridge.oidc.gitlab import Pulse
from bridge.oidc.refusal import job_refused
from bridge.runs import watch as watch_module
from bridge.runs.live_run import LiveRun
from bridge.runs.stopping import Stopper
from bridge.runs.watch import JobWatch
from tests.fakes import FakeCluster, FakeScript

ONE = "1" * 32
EVERY = 0.02


class GitLab:
    """``runs.watch.JobStates``: says of each job what the test has put there."""

    def __init__(self) -> None:
        self.says: dict[str, BridgeError | Pulse] = {}
        self.asked: list[tuple[float, str]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.seconds = 0.0
        self.spoke = 0.0
        """When it last said that a job runs."""

    def state(self, job_token: str) -> Pulse:
        """See JobStates."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.asked.append((time.monotonic(), job_token))
        threading.Event().wait(self.seconds)
        self.at_once -= 1
        said = self.says.get(job_token, Pulse(int(job_token.partition("-")[2]), canceling=False))
        if isinstance(said, BridgeError):
            raise said
        self.spoke = time.monotonic()
        return said

    def count(self, job_token: str) -> int:
        """How often it was asked about a job."""
        return sum(token == job_token for _, token in self.asked)


def over() -> BridgeError:
    """The job token is refused."""
    return job_refused("not_running", "d")


def silent() -> BridgeError:
    """No answer."""
    return Outage("gitlab.unreachable", "T.", "R.")


@pytest.fixture
def gitlab() -> GitLab:
    """Where every job runs."""
    return GitLab()


@pytest.fixture
def live(web: Web, broker: Broker) -> LiveRun:
    """Alice's run, admitted."""
    return web.open(broker.evidence())


Watching = Callable[..., JobWatch]


@pytest.fixture
def watching(web: Web, gitlab: GitLab) -> Iterator[Watching]:
    """Starts a watch."""
    started: list[JobWatch] = []

    def start(**changes: float) -> JobWatch:
        settings = {"every_seconds": EVERY} | changes
        watch = JobWatch(web.runs, Stopper(web.runs), {ISSUER: gitlab}, **settings)
        started.append(watch)
        watch.start()
        return watch

    yield start
    for watch in started:
        watch.stop()


def started_job(web: Web, cluster: FakeCluster, live: LiveRun) -> tuple[Reader, int]:
    """A Slurm job of the run that runs."""
    reader = Reader(web.runs.start_stage(live, ONE, "build_script", b"make"))
    job = cluster.wait_job()
    cluster.run(job.job_id)
    reader.until(lambda: any("runs on" in note for note in reader.notes))
    return reader, job.job_id


def ended(live: LiveRun) -> None:
    """Wait for the run's end."""
    wait_until(lambda: live.run.state is RunState.ENDED, "the end of the run")


@pytest.mark.threat("T10")
@pytest.mark.parametrize(
    ("said", "code"),
    [
        (over(), "job.not_running"),
        (job_refused("user_blocked", "d"), "job.user_blocked"),
        (Pulse(999, canceling=False), "job.not_running"),
    ],
    ids=["over", "blocked", "another job"],
)
def test_a_job_that_is_over_in_gitlab_ends_its_run_and_its_slurm_job(
    web: Web,
    broker: Broker,
    cluster: FakeCluster,
    live: LiveRun,
    gitlab: GitLab,
    watching: Watching,
    said: BridgeError | Pulse,
    code: str,
) -> None:
    watching()
    reader, slurm_job = started_job(web, cluster, live)
    gitlab.says["glcbt-301"] = said
    end = reader.end()
    assert (end["outcome"], end["error"]["code"]) == ("refused", code)
    ended(live)
    assert cluster.jobs[slurm_job].state.startswith("CANCELLED")
    about, done = broker.records(type="run")
    assert (about["phase"], done["phase"], done["detail"]["state"]) == ("intent", "ok", "ended")
    assert about["code"] == done["code"] == code
    assert about["reference"] == done["reference"] == end["error"]["reference"]
    assert cluster.called("destroy")


def test_a_run_between_two_stages_is_ended_only_by_the_second_answer(
    web: Web, live: LiveRun, gitlab: GitLab, watching: Watching
) -> None:
    gitlab.says["glcbt-301"] = over()
    watching()
    ended(live)
    assert gitlab.count("glcbt-301") == 2


@pytest.mark.threat("T10")
def test_nothing_starts_in_a_run_that_was_ended(
    web: Web, cluster: FakeCluster, live: LiveRun, gitlab: GitLab, watching: Watching
) -> None:
    gitlab.says["glcbt-301"] = over()
    watching()
    ended(live)
    assert refused(lambda: web.runs.start_stage(live, ONE, "build_script", b"make")).code == "job.not_running"
    assert refused(lambda: web.runs.node_of(live.run.run_id)).code == "job.not_running"
    assert cluster.called("submit") == []


def test_gitlabs_silence_ends_nothing_and_others_are_asked_meanwhile(
    web: Web, broker: Broker, live: LiveRun, gitlab: GitLab, watching: Watching
) -> None:
    gitlab.says["glcbt-301"] = silent()
    watching()
    wait_until(lambda: gitlab.count("glcbt-301") > 5, "six questions")
    assert (live.stopped, live.run.state) == (None, RunState.ADMITTED)


def test_a_gitlab_that_is_silent_is_left_alone_for_a_turn(
    web: Web, broker: Broker, gitlab: GitLab, watching: Watching
) -> None:
    tokens = [web.open(broker.evidence(job_id)).job_token for job_id in range(301, 311)]
    gitlab.says = {str(token): silent() for token in tokens}
    watching(every_seconds=0.2)
    wait_until(lambda: len(gitlab.asked) >= 5, "five questions")
    moments = [moment for moment, _ in gitlab.asked]
    assert all(later - before >= 0.19 for before, later in pairwise(moments))


def test_a_silence_over_the_setting_is_an_outage(
    web: Web, cluster: FakeCluster, live: LiveRun, gitlab: GitLab, watching: Watching
) -> None:
    watching(silence_seconds=0.3)
    reader, _ = started_job(web, cluster, live)
    gitlab.says["glcbt-301"] = silent()
    end = reader.end()
    assert (end["outcome"], end["error"]["code"]) == ("outage", "gitlab.silent")
    assert time.monotonic() - gitlab.spoke > 0.3


class Moment:
    """The watch's clock, which a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """The moment that it is."""
        return self.now


def looks(watch: JobWatch, monkeypatch: pytest.MonkeyPatch, step_seconds: float, times: int) -> Iterator[float]:
    """Have a watch look at each of so many moments; gives each, after the look."""
    moment = Moment()
    monkeypatch.setattr("bridge.runs.watch.time", moment)
    for _ in range(times):
        watch.look()
        yield moment.now
        moment.now += step_seconds


def test_an_answer_in_between_ends_the_silence(
    web: Web, live: LiveRun, gitlab: GitLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([silent(), Pulse(301, canceling=False)] * 1000)
    monkeypatch.setattr(gitlab, "says", Alternating(said))
    watch = JobWatch(web.runs, Stopper(web.runs), {ISSUER: gitlab}, every_seconds=10, silence_seconds=25)
    assert [live.stopped for _ in looks(watch, monkeypatch, 10.5, 20)] == [None] * 20
    assert len(gitlab.asked) > 10


class Alternating(dict[str, "BridgeError | Pulse"]):
    """Says the next thing of a list, whoever is asked about."""

    def __init__(self, said: Iterator[BridgeError | Pulse]) -> None:
        super().__init__()
        self._said = said

    def get(self, key: str, default: object = None) -> BridgeError | Pulse:  # type: ignore[override]
        """The next."""
        return next(self._said)


def test_a_job_that_is_being_cancelled_is_the_runners_for_a_while(
    web: Web, cluster: FakeCluster, live: LiveRun, gitlab: GitLab, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching()
    reader, slurm_job = started_job(web, cluster, live)
    gitlab.says["glcbt-301"] = Pulse(301, canceling=True)
    before = gitlab.count("glcbt-301")
    wait_until(lambda: gitlab.count("glcbt-301") > before + 4, "some questions")
    assert live.stopped is None
    monkeypatch.setattr(watch_module, "CANCELING_SECONDS", 0.01)
    assert reader.end()["error"]["code"] == "job.not_running"
    assert cluster.jobs[slurm_job].state.startswith("CANCELLED")


def test_every_run_gets_its_turn_one_question_at_a_time(
    web: Web, broker: Broker, gitlab: GitLab, watching: Watching
) -> None:
    tokens = {web.open(broker.evidence(job_id)).job_token for job_id in range(301, 331)}
    gitlab.seconds = 0.005
    watching(every_seconds=0.3)
    wait_until(lambda: all(gitlab.count(str(token)) >= 3 for token in tokens), "three turns for all")
    counts = Counter(token for _, token in list(gitlab.asked)).values()
    assert max(counts) - min(counts) <= 2
    assert gitlab.most_at_once == 1


def test_runs_that_begin_together_are_not_asked_about_together(
    web: Web, broker: Broker, gitlab: GitLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in range(301, 331):
        web.open(broker.evidence(job_id))
    watch = JobWatch(web.runs, Stopper(web.runs), {ISSUER: gitlab}, every_seconds=10)
    asked = [len(gitlab.asked) for _ in looks(watch, monkeypatch, 1, 11)]
    assert asked[-1] >= 30
    assert len(set(asked)) > 4


def test_an_ended_run_is_asked_about_no_more(web: Web, live: LiveRun, gitlab: GitLab, watching: Watching) -> None:
    watching()
    wait_until(lambda: gitlab.count("glcbt-301") > 1, "a question")
    web.runs.finish(live)
    before = gitlab.count("glcbt-301")
    other = threading.Event()
    other.wait(EVERY * 5)
    assert gitlab.count("glcbt-301") <= before + 1


def test_a_run_of_an_earlier_process_is_not_watched(
    web: Web, broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    second = Web(broker.ledger, client, cluster)
    back = second.runs.authenticate(live.run.run_id, live.session)
    gitlab = GitLab()
    gitlab.says["glcbt-301"] = over()
    watch = JobWatch(second.runs, Stopper(second.runs), {ISSUER: gitlab}, every_seconds=EVERY)
    watch.look()
    assert (back.job_token, gitlab.asked) == (None, [])
    second.stop()


@pytest.mark.threat("T10")
def test_the_executor_brings_the_job_token_to_the_next_process(
    broker: Broker, client: BrokerClient, cluster: FakeCluster, live: LiveRun
) -> None:
    parts = make_parts(broker.ledger, client, cluster)
    path = f"/v1/runs/{live.run.run_id}/stages/{ONE}"
    shown = {"authorization": f"Bearer {live.session}"}
    cluster.scripts.append(FakeScript())
    with in_process(parts) as http:
        http.put(f"{path}?stage=get_sources", headers=shown, content=b"git clone")
        (back,) = parts.runs.held()
        assert back.job_token is None
        too_long = http.get(f"{path}/events?after=0", headers=shown | {"x-ci-bridge-job-token": "x" * 5000})
        problem(too_long, 422, "request.invalid")
        http.get(f"{path}/events?after=0", headers=shown | {"x-ci-bridge-job-token": "glcbt-301"})
        assert back.job_token == "glcbt-301"
        http.get(f"{path}/events?after=0", headers=shown | {"x-ci-bridge-job-token": "glcbt-999"})
        assert back.job_token == "glcbt-301"


@pytest.mark.threat("T46")
def test_the_job_token_is_in_no_record_and_no_repr(
    web: Web, broker: Broker, live: LiveRun, gitlab: GitLab, watching: Watching
) -> None:
    gitlab.says["glcbt-301"] = over()
    watching()
    ended(live)
    assert "glcbt-301" not in repr(live)
    assert "glcbt-301" not in str(broker.records())


def test_a_run_over_its_time_that_can_not_be_ended_is_let_go(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, gitlab: GitLab, watching: Watching
) -> None:
    web.runs.start_stage(live, ONE, "build_script", b"make")
    cluster.wait_job()
    cluster.cut()
    live.tickets._bundle = None
    broker.clock.shift = timedelta(hours=2)
    gitlab.says["glcbt-301"] = over()
    stopper = Stopper(web.runs)
    stopper.stop(live, over())
    wait_until(lambda: (stopper.go_on(), web.runs.held() == [])[1], "that it is let go")
    assert len(broker.records(type="tickets", code="run.over_time")) <= 2
    stopper.close()
