"""``ci-bridge policy why``: the reference in a job's log leads to the rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Broker, refused
from remote_site import RemoteSite, remote_site
from test_cli import failed

from tests.api.admin_site import ROLES
from tests.api.people_web import LINKS


@pytest.fixture
def there(broker: Broker, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSite]:
    """The bridge, from another machine, with a person for each role."""
    with remote_site(broker, short_path, monkeypatch) as site:
        broker.use(accounts=LINKS, roles=ROLES)
        yield site


def test_a_refused_job_is_explained_by_its_reference(there: RemoteSite) -> None:
    error = refused(lambda: there.broker.admission.admit(there.broker.evidence(scheduler_parameters="--nodes=99")))
    said = there.run("vic", "policy", "why", str(error.reference))
    assert said.exit_code == 0, said.output
    assert "limits.exceeded: user 101" in said.output
    assert "99 nodes" in said.output


def test_one_that_never_came_to_policy_says_so(there: RemoteSite) -> None:
    error = refused(lambda: there.broker.admission.admit(there.broker.evidence(301, 103)))
    said = there.run("vic", "policy", "why", str(error.reference)).output
    assert "account.not_mapped" in said
    assert "No question was put to the policy" in said


@pytest.mark.threat("T50")
def test_who_has_no_role_learns_nothing(there: RemoteSite) -> None:
    error = refused(lambda: there.broker.admission.admit(there.broker.evidence(scheduler_parameters="--nodes=99")))
    failed(there.run("bob", "policy", "why", str(error.reference)), "caller.role")
