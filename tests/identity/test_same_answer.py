"""Who has no live job of their own learns nothing of who exists, and who has learns of nobody else (T50)."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from benchmarks.main_job import Jobs, Pinned
from realm import Realm, bridgehost, forge, tls
from realm.gitlab.client import GitLabControl
from tests.unit.oidc.issuer_example import b64url

ROUNDS = 40
FORGED = b64url(b"\x5a" * 256)

NAMED: dict[str, dict[str, Any]] = {
    "alice, who has an account": {"user_id": "101", "user_login": "alice"},
    "mallory, who has none": {"user_id": "103", "user_login": "mallory"},
    "eve, whose row names root": {"user_id": "105", "user_login": "eve"},
    "nobody": {"user_id": "999999", "user_login": "nobody-at-all"},
    "a project that exists": {"project_id": "1", "job_project_id": "1", "project_path": "alice/own"},
    "a project that does not": {"project_id": "987654", "job_project_id": "987654", "project_path": "no/such"},
    "a job that does not exist": {"job_id": "987654", "pipeline_id": "987654"},
    "a runner that does not exist": {"runner_id": 987654},
}

Answer = tuple[int, dict[str, str], dict[str, Any]]


class Caller:
    """Somebody on the runner's network, with the jobs that they may show."""

    def __init__(self, client: httpx2.Client, gitlab: GitLabControl, alice: Jobs, mallory: tuple[Jobs, Jobs]) -> None:
        self._client = client
        self.gitlab = gitlab
        self.alice = alice.take(client)
        self.mallory = tuple(jobs.take(client) for jobs in mallory)

    def post(self, evidence: dict[str, Any]) -> Answer:
        """The answer, less what is new in every answer: the reference, and the headers' date."""
        answer = self._client.post(f"{bridgehost.URL}/v1/runs", json=evidence)
        body = answer.json()
        assert body.pop("reference")
        headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
        return answer.status_code, headers, body

    def seconds(self, evidence: dict[str, Any]) -> float:
        began = time.perf_counter()
        self._client.post(f"{bridgehost.URL}/v1/runs", json=evidence)
        return time.perf_counter() - began

    def forged(self, claims: dict[str, Any]) -> dict[str, Any]:
        """Alice's evidence with other names in the token, and a signature that is none."""
        token = self.gitlab.mint(self.alice["facts"]["job_id"], audience=bridgehost.AUDIENCE, overrides=claims)
        return self.alice | {"id_token": f"{token.rpartition('.')[0]}.{FORGED}"}

    def asked_of_gitlab(self, evidence: dict[str, Any]) -> list[str]:
        """What the bridge asks GitLab because of this evidence."""
        self.gitlab.forget_requests()
        self.post(evidence)
        # The realm's own runner asks for work all the time.
        paths = [request["path"] for request in self.gitlab.requests()]
        return [path for path in paths if not path.startswith("/api/v4/jobs/")]


@pytest.fixture(scope="module")
def caller(realm: Realm) -> Iterator[Caller]:
    context = ssl.create_default_context(cadata=realm.host("runner").read(tls.CA_PATH).decode())
    with ExitStack() as stack:
        gitlab = stack.enter_context(forge.control(realm))
        alice = Jobs(realm, 1, "alice", "alice/own")
        mallory = Jobs(realm, 1, "mallory", "mallory/own"), Jobs(realm, 1, "mallory", "mallory/other")
        for jobs in (alice, *mallory):
            stack.callback(jobs.close)
        stack.enter_context(realm.host("runner").network())
        addresses = {forge.URL: "gitlab", bridgehost.URL: "bridge"}
        yield Caller(stack.enter_context(Pinned(realm, addresses, context)), gitlab, alice, mallory)


def one_answer(answers: dict[str, Answer]) -> Answer:
    """The answer that all of them are."""
    first = next(iter(answers.values()))
    assert {name: answer for name, answer in answers.items() if answer != first} == {}
    return first


@pytest.mark.threat("T50")
def test_a_forger_gets_one_answer_whomever_the_token_names(caller: Caller) -> None:
    status, _, body = one_answer({name: caller.post(caller.forged(claims)) for name, claims in NAMED.items()})
    assert (status, body["code"]) == (401, "token.signature")
    assert not any(word in str(body) for word in ("alice", "mallory", "101", "103", "chem"))


@pytest.mark.threat("T50")
def test_a_forgers_names_lead_to_no_request_of_anybody(caller: Caller) -> None:
    caller.post(caller.forged({}))
    assert {name: caller.asked_of_gitlab(caller.forged(claims)) for name, claims in NAMED.items()} == {
        name: [] for name in NAMED
    }


@pytest.mark.threat("T50")
def test_a_forger_can_not_tell_users_apart_by_time(caller: Caller) -> None:
    """The share of pairs in which one is slower; a half is no difference, and 40 by 40 pairs stay well within."""
    known = caller.forged(NAMED["alice, who has an account"])
    unknown = caller.forged(NAMED["nobody"])
    for evidence in (known, unknown) * 3:
        caller.seconds(evidence)
    pairs = [(caller.seconds(known), caller.seconds(unknown)) for _ in range(ROUNDS)]
    ours, others = zip(*pairs, strict=True)
    share = sum(one > other for one in ours for other in others) / ROUNDS**2
    assert 0.15 < share < 0.85


STOLEN: dict[str, dict[str, Any]] = {
    "her own job": {},
    "another job of hers": {"job_id": 1},
    "a job that does not exist": {"job_id": 987654},
    "a project that does not exist": {"project_id": 987654, "project_path": "no/such"},
    "a user that does not exist": {"user_id": 999999},
    "a user without an account": {"user_id": 103},
}


@pytest.mark.threat("T50")
def test_a_thief_with_a_genuine_token_and_a_job_token_of_their_own_gets_one_answer(caller: Caller) -> None:
    def stolen(facts: dict[str, Any]) -> dict[str, Any]:
        job_token = caller.mallory[0]["job_token"]
        return caller.alice | {"job_token": job_token, "facts": caller.alice["facts"] | facts}

    status, _, body = one_answer({name: caller.post(stolen(facts)) for name, facts in STOLEN.items()})
    assert (status, body["code"]) == (401, "job.mismatch")
    steps = {name: caller.asked_of_gitlab(stolen(facts)) for name, facts in STOLEN.items()}
    assert steps == {name: ["/api/v4/job"] for name in STOLEN}


@pytest.mark.threat("T50")
def test_a_person_without_an_account_learns_that_and_nothing_of_projects_clusters_or_slurm(caller: Caller) -> None:
    own, other = caller.mallory
    asked = {
        "one project": own,
        "another project": other,
        "a cluster that exists": own | {"cluster": "pocket"},
        "a cluster that does not": own | {"cluster": "no-such-cluster"},
        "a partition that exists": own | {"scheduler_parameters": "--partition=standard"},
        "a partition that does not": own | {"scheduler_parameters": "--partition=no-such"},
        "somebody's Slurm account": own | {"scheduler_parameters": "--account=chem"},
    }
    status, _, body = one_answer({name: caller.post(evidence) for name, evidence in asked.items()})
    assert (status, body["code"]) == (403, "account.not_mapped")
    steps = {name: caller.asked_of_gitlab(evidence) for name, evidence in asked.items()}
    assert steps == {name: ["/api/v4/job"] for name in asked}
