"""A project without `id_tokens:`: refused by the shipped policy, let in where the site's own policy says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from realm import Realm
from realm.bridgehost import POLICIES, ci_bridge
from realm.demo.projects import ci_file, job
from realm.gitlab.client import GitLabControl
from tests.e2e.person import Person
from tests.e2e.site_policy import reload

GUARDS = f"{POLICIES}/guards.cedar"
OWN_RUNNER = 'context has runner_environment && context.runner_environment == "self-hosted"'


def _put_in_force(realm: Realm, guards: str) -> None:
    realm.host("bridge").write(GUARDS, guards)
    reload(realm)


@contextmanager
def _without_id_token(realm: Realm, project_id: int) -> Iterator[None]:
    """Let one project's jobs in by their job tokens alone."""
    shipped = realm.host("bridge").read(GUARDS).decode()
    signed = 'context.evidence == "id_token"'
    guards = shipped.replace(signed, f"{signed} || context.project_id == {project_id}")
    guards = guards.replace(OWN_RUNNER, f'context.evidence == "job_token" || ({OWN_RUNNER})')
    try:
        _put_in_force(realm, guards)
        yield
    finally:
        _put_in_force(realm, shipped)


@pytest.mark.threat("T12")
def test_a_job_token_alone_is_enough_only_where_policy_names_the_project(
    realm: Realm, gitlab: GitLabControl, alice: Person
) -> None:
    files = ci_file(it=job('echo "who: $(id -un)"', id_tokens={}))
    project = gitlab.create_project("alice/unsigned", files=files, members={"alice": 40}, protected_refs=["main"])

    with _without_id_token(realm, project.id):
        let_in = alice.finished(gitlab.start_pipeline(project.id, "alice").jobs[0])
        other = alice.finished(alice.push("echo ran", id_tokens={}))
        signed = alice.finished(alice.push("echo ran"))
    after = alice.finished(gitlab.start_pipeline(project.id, "alice").jobs[0])

    assert let_in.status == "success", alice.log(let_in)
    assert "\nwho: alice" in alice.log(let_in)
    assert "shown by job_token" in alice.log(let_in)
    assert signed.status == "success"
    for refused in (other, after):
        assert (refused.status, refused.failure_reason) == ("failed", "script_failure")
        assert re.search(r"id-token-required.*id_tokens:.*policy\.forbidden", alice.log(refused), re.DOTALL)
    records = json.loads(ci_bridge(realm, "audit", "timeline", "--job", str(let_in.id), "--json"))
    admission = [one for one in records if one["type"] == "admission"]
    assert [one["phase"] for one in admission] == ["intent", "ok"]
    assert {one["detail"]["evidence"] for one in admission} == {"job_token"}
    assert {one["actor"]["jti"] for one in admission} == {f"job:{let_in.id}"}
