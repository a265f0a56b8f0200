"""The whole way from a job's token to an identity, against the realm's GitLab over its real interfaces."""

import base64
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from bridge.errors import BridgeError, Outage
from bridge.model import Identity, JobFacts, SignedClaims, UnverifiedToken
from bridge.oidc.claims import unknown_claims
from bridge.oidc.fetch import DiscoveryFetcher
from bridge.oidc.gitlab import GitLabJobCheck
from bridge.oidc.identity import identity
from bridge.oidc.issuers import IssuerKeys, Issuers
from bridge.oidc.verifier import Audience, Verifier
from realm.gitlab.client import GitLabControl
from realm.gitlab.local import LocalGitLab

AUDIENCE = "ci-bridge"
CI = {"build": {"script": "true", "id_tokens": {"BRIDGE": {"aud": AUDIENCE}}, "timeout": "10m"}}


class Front:
    """GitLab with one project of alice's, and our way in."""

    def __init__(self, gitlab: LocalGitLab) -> None:
        self.control: GitLabControl = gitlab.control
        context = ssl.create_default_context(cafile=str(gitlab.files.ca))
        self.http = httpx2.Client(base_url=gitlab.url, verify=context, trust_env=False)
        self.now = 0.0
        keys = IssuerKeys(gitlab.url, DiscoveryFetcher(gitlab.url, gitlab.files.ca), self, lambda: self.now)
        self.verifier = Verifier([Audience(gitlab.url, AUDIENCE, 3600)], Issuers({gitlab.url: keys}))
        self.check = GitLabJobCheck(gitlab.url, gitlab.files.ca)
        self.control.create_user("alice", id=101)
        files = {".gitlab-ci.yml": json.dumps(CI)}
        self.project = self.control.create_project(
            "chem/water", files=files, members={"alice": 40}, protected_refs=["main"]
        )
        self.runner = self.control.create_runner("realm-runner")

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        """Expect it."""

    def failed(self, issuer: str, reason: str) -> None:
        """Nothing here makes a fetch fail."""
        raise AssertionError(f"{issuer}: {reason}")

    def start(self) -> "Shown":
        """A job that a runner has just taken, as the runner's executor shows it."""
        self.control.start_pipeline(self.project.id, "alice")
        return self.take()

    def take(self) -> "Shown":
        """The next job."""
        answer = self.http.post("/api/v4/jobs/request", json={"token": self.runner.token})
        assert answer.status_code == 201, answer.text
        job = answer.json()
        facts = JobFacts(
            job_id=job["id"],
            project_id=job["job_info"]["project_id"],
            pipeline_id=job["job_info"]["pipeline_id"],
            user_id=job["job_info"].get("user_id"),
            ref=job["git_info"]["ref"],
            sha=job["git_info"]["sha"],
            job_name=job["job_info"]["name"],
            stage=job["job_info"]["stage"],
            project_path=job["job_info"]["project_full_path"],
            timeout_seconds=job["runner_info"]["timeout"],
        )
        tokens = self.control.tokens(job["id"])
        return Shown(tokens.id_tokens["BRIDGE"], tokens.job_token, facts)

    def claims(self, token: str) -> SignedClaims:
        """What the verifier makes of a token now."""
        return self.verifier.verify(UnverifiedToken(token), datetime.now(tz=UTC))

    def admit(self, shown: "Shown") -> Identity:
        """Verify, ask, identify."""
        claims = self.claims(shown.id_token)
        assert unknown_claims(claims) == ()
        return identity(claims, self.check.alive(claims, shown.job_token, shown.facts))

    def refusal(self, shown: "Shown") -> BridgeError:
        """Why the job is not admitted."""
        with pytest.raises(BridgeError) as caught:
            self.admit(shown)
        return caught.value


@dataclass(frozen=True)
class Shown:
    """What a runner shows of a job."""

    id_token: str
    job_token: str
    facts: JobFacts


@pytest.fixture(scope="module")
def gitlab() -> Iterator[Front]:
    """One stand-in for this module."""
    with LocalGitLab() as running:
        front = Front(running)
        with front.http:
            yield front


@pytest.fixture
def front(gitlab: Front) -> Iterator[Front]:
    """The stand-in, well-behaved before and after."""
    yield gitlab
    gitlab.control.behave()


def test_a_live_job_becomes_its_persons_identity(front: Front) -> None:
    shown = front.start()
    who = front.admit(shown)
    assert (who.user_id, who.user_login, who.job_id) == (101, "alice", shown.facts.job_id)
    assert (who.project_id, who.job_project_id) == (front.project.id, front.project.id)
    assert (who.job_name, who.ref, who.ref_protected) == ("build", "main", True)
    assert who.job_timeout_seconds == 600
    assert who.runner_id == front.runner.id


@pytest.mark.threat("T10")
def test_a_cancelled_job_is_refused(front: Front) -> None:
    shown = front.start()
    front.control.cancel_job(shown.facts.job_id)
    assert front.refusal(shown).code == "job.not_running"


@pytest.mark.threat("T10")
def test_tokens_of_two_jobs_do_not_mix(front: Front) -> None:
    one, other = front.start(), front.start()
    assert front.refusal(Shown(one.id_token, other.job_token, one.facts)).code == "job.mismatch"
    assert front.refusal(Shown(one.id_token, one.job_token, other.facts)).code == "job.mismatch"
    assert front.refusal(Shown(other.id_token, one.job_token, one.facts)).code == "job.mismatch"


@pytest.mark.threat("T12")
def test_a_forks_merge_request_shows_both_projects(front: Front) -> None:
    front.control.create_user("mallory", id=103)
    fork = front.control.create_project(
        "mallory/water", files={".gitlab-ci.yml": json.dumps(CI)}, members={"mallory": 40}, fork_of=front.project.id
    )
    front.control.set_member(front.project.id, "mallory", 30)
    front.control.start_fork_pipeline(front.project.id, fork.id, "mallory")
    who = front.admit(front.take())
    assert (who.project_id, who.job_project_id) == (fork.id, front.project.id)


@pytest.mark.threat("T5")
def test_keys_rotate_without_a_false_refusal_and_withdrawn_ones_die(front: Front) -> None:
    before = front.start()
    old = json_header(before.id_token)["kid"]
    front.claims(before.id_token)
    front.control.rotate_keys()
    front.now += 30
    after = front.start()
    assert json_header(after.id_token)["kid"] != old
    front.claims(after.id_token)
    front.claims(before.id_token)
    front.control.withdraw_key(old)
    front.now += 300
    assert front.refusal(before).code == "token.unknown_key"


def json_header(token: str) -> dict[str, Any]:
    """A token's header."""
    segment = token.partition(".")[0]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    return decoded


FORGERIES: dict[str, dict[str, Any]] = {
    "unsigned": {"sign_with": "none"},
    "HMAC": {"sign_with": "hs256"},
    "empty signature": {"sign_with": "empty"},
    "unpublished key": {"sign_with": "unknown"},
    "no jti": {"remove": ["jti"]},
    "audience list": {"overrides": {"aud": [AUDIENCE]}},
    "no kid": {"header": {"kid": None}},
    "jku": {"header": {"jku": "https://evil.test/keys"}},
    "somebody else's number as an integer": {"overrides": {"user_id": 102}},
}


@pytest.mark.threat("T1")
@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgeries_are_refused(front: Front, forgery: str) -> None:
    shown = front.start()
    options = {"audience": AUDIENCE, "overrides": {}, "header": {}} | FORGERIES[forgery]
    token = front.control.mint(shown.facts.job_id, **options)
    assert front.refusal(Shown(token, shown.job_token, shown.facts)).code.startswith("token.")


@pytest.mark.parametrize("kind", ["job_api_500", "job_api_503", "job_api_redirect", "job_api_garbage", "job_api_drop"])
def test_an_ill_gitlab_is_an_outage(front: Front, kind: str) -> None:
    shown = front.start()
    details = {"target": "https://localhost/stolen"} if kind.endswith("redirect") else {}
    front.control.misbehave(kind, **details)
    error = front.refusal(shown)
    assert (type(error), error.code) == (Outage, "gitlab.unreachable")
    assert front.admit(shown).user_id == 101


LIES: dict[str, Callable[[Shown], dict[str, Any]]] = {
    "another user": lambda shown: {"user": {"id": 102}},
    "another project": lambda shown: {"pipeline": {"project_id": 999}},
    "another job": lambda shown: {"id": shown.facts.job_id + 1},
}


@pytest.mark.threat("T10")
@pytest.mark.parametrize("lie", LIES)
def test_three_sources_must_agree(front: Front, lie: str) -> None:
    shown = front.start()
    front.control.misbehave("job_api_lies", changes=LIES[lie](shown))
    assert front.refusal(shown).code == "job.mismatch"


@pytest.mark.threat("T10")
def test_a_person_whom_gitlab_blocked_is_refused(front: Front) -> None:
    shown = front.start()
    front.control.misbehave("job_api_lies", changes={"user": {"state": "blocked"}})
    assert front.refusal(shown).code == "job.user_blocked"
