"""Bad input and attacks, from the outside in: each gets its code, its exit code, and nothing else."""

from __future__ import annotations

import json

import pytest

from realm import Realm, bridgehost, tls
from realm.demo.projects import HELLO
from realm.gitlab.client import GitLabControl
from tests.e2e.person import WAIT_FOR_GO, Person


@pytest.mark.threat("T30")
@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ("--uid=0", "slurm.option_refused"),
        ("--export=ALL", "slurm.option_refused"),
        ("--get-user-env", "slurm.option_refused"),
        ("--wrap=id", "slurm.option_refused"),
        ("--nodes=99", "limits."),
        ("--time=10-0", "limits."),
        ("--partition=nosuch", "limits."),
        ("--nodes=two", "slurm.option_value"),
        ('--partition="ci', "slurm.options_malformed"),
    ],
)
def test_slurm_options_outside_policy_are_refused_by_name(alice: Person, parameters: str, code: str) -> None:
    job = alice.finished(alice.push("echo ran", variables={"SCHEDULER_PARAMETERS": parameters}))

    assert job.status == "failed"
    assert job.failure_reason == "script_failure"
    assert code in alice.log(job)
    assert "\nran" not in alice.log(job)


def test_a_project_without_id_token_is_told_what_to_add(alice: Person) -> None:
    job = alice.finished(alice.push("echo ran", id_tokens={}))

    assert (job.status, job.failure_reason) == ("failed", "script_failure")
    assert "id_tokens:" in alice.log(job)
    assert "policy.forbidden" in alice.log(job)
    assert "id-token-required" in alice.log(job)


@pytest.mark.threat("T6")
def test_a_token_for_another_audience_is_refused(alice: Person) -> None:
    job = alice.finished(alice.push("echo ran", id_tokens={"CI_BRIDGE_TOKEN": {"aud": "https://elsewhere.test"}}))

    assert (job.status, job.failure_reason) == ("failed", "script_failure")
    assert "token." in alice.log(job)


@pytest.mark.threat("T12")
def test_a_forks_pipeline_in_the_parent_is_refused(realm: Realm, gitlab: GitLabControl) -> None:
    parent = gitlab.create_project("chem/parent", files=HELLO, members={"alice": 40}, protected_refs=["main"])
    fork = gitlab.create_project("mallory/parent", files=HELLO, members={"alice": 40}, fork_of=parent.id)
    job = gitlab.start_fork_pipeline(parent.id, fork.id, "alice").jobs[0]
    done = Person(realm, gitlab, "alice").finished(job)

    assert (done.status, done.failure_reason) == ("failed", "script_failure")
    assert "no-forks" in gitlab.trace(job.id)


@pytest.mark.threat("T31")
def test_variables_that_name_somebody_else_change_nothing(alice: Person) -> None:
    lies = {
        "GITLAB_USER_LOGIN": "bob",
        "GITLAB_USER_ID": "102",
        "CI_JOB_ID": "1",
        "CI_PROJECT_ID": "1",
        "CI_BRIDGE_RUN": "a" * 26,
        "CI_BRIDGE_SESSION": "stolen",
        "BUILD_FAILURE_EXIT_CODE": "0",
        "SYSTEM_FAILURE_EXIT_CODE": "0",
        "LD_PRELOAD": "/tmp/evil.so",
        "BASH_ENV": "/tmp/evil.sh",
    }
    job = alice.finished(alice.push('echo "who: $(id -un)"', variables=lies))

    assert job.status == "success"
    assert "\nwho: alice" in alice.log(job)


def _post_run(realm: Realm, host: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    argv = ["curl", "--silent", "--cacert", tls.CA_PATH, "--json", "@-", "--write-out", "\n%{http_code}"]
    done = realm.host(host).run([*argv, f"{bridgehost.URL}/v1/runs"], input=json.dumps(body).encode())
    text, _, status = done.stdout.decode().rpartition("\n")
    return int(status), json.loads(text)


@pytest.mark.threat("T7")
def test_a_token_in_other_hands_opens_nothing(realm: Realm, alice: Person, bob: Person) -> None:
    victim, own = alice.push(WAIT_FOR_GO), bob.push(WAIT_FOR_GO)
    alice.waits(victim)
    bob.waits(own)
    stolen, mine = alice.tokens(victim), bob.tokens(own)
    facts = {
        "job_id": victim.id, "project_id": 1, "pipeline_id": 1, "user_id": 101, "ref": "main", "sha": "0" * 40,
        "job_name": "it", "stage": "test", "project_path": "x", "timeout_seconds": 3600,
    }  # fmt: skip
    tries = {
        "replayed whole": (stolen.id_tokens["CI_BRIDGE_TOKEN"], stolen.job_token),
        "with another job token": (stolen.id_tokens["CI_BRIDGE_TOKEN"], mine.job_token),
        "with no job token": (stolen.id_tokens["CI_BRIDGE_TOKEN"], "glcbt-none"),
        "padded": (stolen.id_tokens["CI_BRIDGE_TOKEN"] + "==", stolen.job_token),
    }
    answers = {
        name: _post_run(realm, "desk", {"id_token": token, "job_token": job_token, "facts": facts})
        for name, (token, job_token) in tries.items()
    }
    alice.go(victim)
    bob.go(own)

    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(tries, 401)
    assert alice.finished(victim).status == "success"
    assert bob.finished(own).status == "success"


def test_a_job_that_somebody_submits_by_hand_gets_no_tickets_and_runs(realm: Realm) -> None:
    login = realm.host("login")
    argv = ["srun", "--job-name=ci-mine", "bash", "-c", "klist 2>&1; echo ran"]
    done = login.run(argv, user="alice", timeout=60)

    assert b"ran" in done.stdout
    assert b"lustre_mds" not in done.stdout
