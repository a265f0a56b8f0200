"""The job is real and alive: token, runner and GitLab agree, and GitLab says it runs (T10, T31)."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from https_server import HttpsServer, https_server
from issuer_example import ISSUER

from bridge.errors import BridgeError, Outage, TokenRefused
from bridge.model import JobFacts, SignedClaims
from bridge.oidc.gitlab import MAX_ANSWER_BYTES, TOTAL_SECONDS, GitLabJobCheck, JobChecks, Pulse
from bridge.oidc.identity import identity

JOB = "/api/v4/job"
TOKEN = "glcbt-canary-77aa"
SHA = "0123456789abcdef0123456789abcdef01234567"
RETRY_AFTER_SECONDS = 60
SLOW_SECONDS = 100.0
"""How long the slow answers take; nobody waits for half of it."""
FACTS: dict[str, Any] = {
    "job_id": 301,
    "project_id": 7,
    "pipeline_id": 31,
    "user_id": 101,
    "ref": "main",
    "sha": SHA,
    "job_name": "build",
    "stage": "test",
    "project_path": "chem/water",
    "timeout_seconds": 3600,
}


def answer(**changes: object) -> dict[str, Any]:
    """What GET /job says of the job in FACTS; ``pipeline_id=8`` changes ``pipeline.id`` and so on."""
    job: dict[str, Any] = {
        "id": 301,
        "status": "running",
        "stage": "test",
        "name": "build",
        "ref": "main",
        "tag": False,
        "web_url": "https://gitlab.realm.test/chem/water/-/jobs/301",
        "user": {"id": 101, "username": "alice", "state": "active"},
        "commit": {"id": SHA},
        "pipeline": {"id": 31, "project_id": 7, "sha": SHA, "ref": "main", "source": "push"},
        "runner": {"id": 1},
    }
    for name, value in changes.items():
        outer, _, inner = name.partition("__")
        if inner:
            job[outer][inner] = value
        else:
            job[outer] = value
    return job


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HttpsServer]:
    """A GitLab that knows one running job."""
    with https_server(tmp_path) as server:
        server.body(JOB, json.dumps(answer()).encode())
        yield server


@pytest.fixture
def check(site: HttpsServer) -> GitLabJobCheck:
    """The check against that GitLab."""
    return GitLabJobCheck(site.url, site.ca_file)


@pytest.fixture
def signed(claims: dict[str, Any]) -> SignedClaims:
    """Claims that the verifier let through."""
    return SignedClaims(claims)


def refused(check: GitLabJobCheck, claims: SignedClaims, **facts: object) -> BridgeError:
    """The error for a job with these facts."""
    with pytest.raises(BridgeError) as caught:
        check.alive(claims, TOKEN, JobFacts(**(FACTS | facts)))
    return caught.value


def test_confirms_a_running_job_and_makes_it_an_identity(
    site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims
) -> None:
    job = JobChecks({ISSUER: check}).alive(signed, TOKEN, JobFacts(**FACTS))
    who = identity(signed, job)
    assert (who.user_id, who.project_id, who.job_project_id, who.job_id, who.job_name) == (101, 7, 7, 301, "build")
    assert who.ref_protected is True
    assert who.job_timeout_seconds == 3600
    assert who.token_expires_at.timestamp() == signed["exp"]
    assert [path for path, _ in site.requests] == [JOB]
    assert site.requests[0][1]["JOB-TOKEN"] == TOKEN


def test_connections_are_kept(site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims) -> None:
    ports: set[int] = set()
    body = json.dumps(answer()).encode()

    def remember(handler: BaseHTTPRequestHandler) -> None:
        ports.add(handler.client_address[1])
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Set-Cookie", "session=of-somebody")
        handler.end_headers()
        handler.wfile.write(body)

    site.answers[JOB] = remember
    for _ in range(3):
        check.alive(signed, TOKEN, JobFacts(**FACTS))
    assert len(ports) == 1
    assert all("Cookie" not in headers for _, headers in site.requests)


GITLAB_SAYS = [
    {"id": 302},
    {"user__id": 102},
    {"pipeline__id": 32},
    {"pipeline__project_id": 8},
    {"pipeline__sha": "f" * 40},
    {"ref": "other"},
    {"name": "deploy"},
    {"stage": "deploy"},
    {"runner": {"id": 2}},
]


@pytest.mark.threat("T10")
@pytest.mark.parametrize("said", GITLAB_SAYS, ids=str)
def test_refuses_a_job_token_of_another_job(
    site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims, said: dict[str, object]
) -> None:
    site.body(JOB, json.dumps(answer(**said)).encode())
    assert refused(check, signed).code == "job.mismatch"


@pytest.mark.threat("T31")
@pytest.mark.parametrize(
    "facts",
    [
        {"job_id": 302},
        {"project_id": 8},
        {"pipeline_id": 32},
        {"user_id": 102},
        {"ref": "other"},
        {"sha": "f" * 40},
        {"job_name": "deploy"},
        {"stage": "deploy"},
    ],
    ids=str,
)
def test_refuses_what_a_runner_makes_up(check: GitLabJobCheck, signed: SignedClaims, facts: dict[str, object]) -> None:
    assert refused(check, signed, **facts).code == "job.mismatch"


@pytest.mark.threat("T10")
@pytest.mark.parametrize(
    "claim",
    [
        {"job_id": "302"},
        {"job_project_id": "8"},
        {"pipeline_id": "32"},
        {"user_id": "102"},
        {"ref": "x"},
        {"sha": "f" * 40},
        {"runner_id": 2},
    ],
    ids=str,
)
def test_refuses_a_token_of_another_job(
    check: GitLabJobCheck, claims: dict[str, Any], claim: dict[str, object]
) -> None:
    assert refused(check, SignedClaims(claims | claim)).code == "job.mismatch"


def test_a_merge_request_names_its_branch_in_the_token_and_its_ref_elsewhere(
    site: HttpsServer, check: GitLabJobCheck, claims: dict[str, Any]
) -> None:
    ref = "refs/merge-requests/4/head"
    site.body(JOB, json.dumps(answer(ref=ref)).encode())
    merge = SignedClaims(claims | {"pipeline_source": "merge_request_event", "ref": "feature"})
    assert check.alive(merge, TOKEN, JobFacts(**(FACTS | {"ref": ref}))).ref == ref
    assert refused(check, merge, ref="refs/merge-requests/5/head").code == "job.mismatch"


def test_older_payloads_without_a_user_are_confirmed_by_the_other_two(
    check: GitLabJobCheck, signed: SignedClaims
) -> None:
    assert check.alive(signed, TOKEN, JobFacts(**(FACTS | {"user_id": None}))).user_id == 101


@pytest.mark.threat("T10")
@pytest.mark.parametrize("status", ["pending", "success", "failed", "canceled", "canceling", "skipped", "manual", ""])
def test_refuses_jobs_that_do_not_run(
    site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims, status: str
) -> None:
    site.body(JOB, json.dumps(answer(status=status)).encode())
    assert refused(check, signed).code == "job.not_running"


@pytest.mark.threat("T10")
@pytest.mark.parametrize("status", [401, 403])
def test_refuses_dead_job_tokens(site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims, status: int) -> None:
    site.body(JOB, b'{"message": "401 Unauthorized"}', status)
    error = refused(check, signed)
    assert (error.code, type(error)) == ("job.not_running", TokenRefused)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Evil: 1", "\u0442", "x" * 5000])
def test_refuses_malformed_job_tokens_without_asking(
    site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims, token: str
) -> None:
    with pytest.raises(TokenRefused) as caught:
        check.alive(signed, token, JobFacts(**FACTS))
    assert caught.value.code == "job.not_running"
    assert site.requests == []


def test_refuses_people_whom_gitlab_has_blocked(site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims) -> None:
    site.body(JOB, json.dumps(answer(user__state="blocked")).encode())
    assert refused(check, signed).code == "job.user_blocked"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{}", 500),
        (b"{}", 502),
        (b"{}", 503),
        (b'{"message": "slow down"}', 429),
        (b"{}", 404),
        (b"<html>", 200),
        (b"{}", 200),
        (b"[]", 200),
        (json.dumps(answer(id="301")).encode(), 200),
        (json.dumps(answer(user=None)).encode(), 200),
        (json.dumps(answer(pipeline=7)).encode(), 200),
        (json.dumps(answer()).encode().ljust(MAX_ANSWER_BYTES + 1), 200),
    ],
    ids=[
        "500",
        "502",
        "503",
        "429",
        "404",
        "html",
        "empty",
        "list",
        "id is text",
        "no user",
        "pipeline is a number",
        "large",
    ],
)
def test_other_answers_are_an_outage_at_once(
    site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims, body: bytes, status: int
) -> None:
    site.body(JOB, body, status, {"Retry-After": str(RETRY_AFTER_SECONDS), "Content-Type": "application/json"})
    began = time.monotonic()
    error = refused(check, signed)
    assert (error.code, type(error)) == ("gitlab.unreachable", Outage)
    assert time.monotonic() - began < RETRY_AFTER_SECONDS / 2
    assert len(site.requests) == 1


def redirect(handler: BaseHTTPRequestHandler) -> None:
    """The job token would travel with it."""
    handler.send_response(302)
    handler.send_header("Location", "/stolen")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer."""
    threading.Event().wait(SLOW_SECONDS)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """A body that comes a byte at a time, each well within the read time-out."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    pause = threading.Event()
    for _ in range(1000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        pause.wait(SLOW_SECONDS / 1000)


@pytest.mark.parametrize("behaviour", [redirect, silent, dripping])
def test_an_unhelpful_gitlab_is_an_outage_within_five_seconds(
    site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims, behaviour: Callable[..., None]
) -> None:
    site.answers[JOB] = behaviour
    began = time.monotonic()
    assert refused(check, signed).code == "gitlab.unreachable"
    assert TOTAL_SECONDS < 5
    assert time.monotonic() - began < SLOW_SECONDS / 2, "it waited for the end of the answer"
    assert [path for path, _ in site.requests] == [JOB]


def test_a_gitlab_that_is_gone_is_an_outage(tmp_path: Path, signed: SignedClaims) -> None:
    with https_server(tmp_path) as server:
        check = GitLabJobCheck(server.url, server.ca_file)
    assert refused(check, signed).code == "gitlab.unreachable"


@pytest.mark.threat("T46")
def test_errors_never_hold_the_job_token(site: HttpsServer, check: GitLabJobCheck, signed: SignedClaims) -> None:
    for body, status in ((f'{{"message": "{TOKEN}"}}'.encode(), 500), (b"{}", 401), (b"{}", 200)):
        site.body(JOB, body, status)
        error = refused(check, signed)
        assert TOKEN not in f"{error} {error.title} {error.remedy} {dict(error.context)}"


def test_trusts_only_its_own_ca(
    site: HttpsServer, tmp_path: Path, signed: SignedClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(site.ca_file))
    with https_server(other) as stranger:
        check = GitLabJobCheck(site.url, stranger.ca_file)
    assert refused(check, signed).code == "gitlab.unreachable"
    assert site.requests == []


def test_takes_only_https() -> None:
    with pytest.raises(ValueError, match="https"):
        GitLabJobCheck("http://gitlab.realm.test", Path("/nowhere"))


@pytest.mark.threat("T10")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        *(({"status": status}, "job.not_running") for status in ("success", "failed", "canceled", "pending", "")),
        ({"user__state": "blocked"}, "job.user_blocked"),
        ({"status": "canceling", "user__state": "blocked"}, "job.user_blocked"),
        ({"status": None}, "gitlab.unreachable"),
        ({"id": True}, "gitlab.unreachable"),
        ({"user": []}, "gitlab.unreachable"),
    ],
)
def test_an_admitted_job_that_is_over_is_told_from_a_silent_gitlab(
    site: HttpsServer, check: GitLabJobCheck, changes: dict[str, object], code: str
) -> None:
    site.body(JOB, json.dumps(answer(**changes)).encode())
    with pytest.raises(BridgeError) as caught:
        check.state(TOKEN)
    assert caught.value.code == code
    assert TOKEN not in f"{caught.value} {dict(caught.value.context)}"


@pytest.mark.parametrize(("status", "canceling"), [("running", False), ("canceling", True)])
def test_an_admitted_job_that_goes_on(
    site: HttpsServer, check: GitLabJobCheck, status: str, *, canceling: bool
) -> None:
    site.body(JOB, json.dumps(answer(status=status)).encode())
    assert check.state(TOKEN) == Pulse(301, canceling)
    assert site.requests[0][1]["JOB-TOKEN"] == TOKEN


@pytest.mark.threat("T10")
@pytest.mark.parametrize(("status", "code"), [(401, "job.not_running"), (403, "job.not_running"), (502, "gitlab.")])
def test_an_admitted_job_whose_token_is_refused_is_over(
    site: HttpsServer, check: GitLabJobCheck, status: int, code: str
) -> None:
    site.body(JOB, b"{}", status)
    with pytest.raises(BridgeError) as caught:
        check.state(TOKEN)
    assert caught.value.code.startswith(code)
