"""What end-to-end tests share: one realm, its GitLab, and two people who push."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from realm import Realm, forge
from realm.demo.scenes import Scenes
from realm.gitlab.client import GitLabControl
from realm.principals import MDS
from tests.e2e.on_nodes import ON_NODE1
from tests.e2e.person import WAIT_FOR_GO, Person


@pytest.fixture(scope="session")
def gitlab(realm: Realm) -> Iterator[GitLabControl]:
    with forge.control(realm) as client:
        yield client


@pytest.fixture(scope="session")
def alice(realm: Realm, gitlab: GitLabControl) -> Person:
    return Person(realm, gitlab, "alice")


@pytest.fixture(scope="session")
def bob(realm: Realm, gitlab: GitLabControl) -> Person:
    return Person(realm, gitlab, "bob")


@pytest.fixture
def node1_only(realm: Realm) -> Iterator[None]:
    """Jobs have no choice of node."""
    update = ["scontrol", "update", "nodename=node2"]
    realm.host("ctl").run([*update, "state=drain", "reason=test"])
    yield
    realm.host("ctl").run([*update, "state=resume"])


@pytest.fixture
def waiting(alice: Person, node1_only: None) -> Iterator[tuple[int, str]]:
    """A job of alice's that waits on node1: its ids in GitLab and Slurm."""
    job = alice.push(WAIT_FOR_GO, variables=ON_NODE1)
    slurm_id = alice.slurm_id(job)
    alice.waits(job)
    yield job.id, slurm_id
    if alice.gitlab.job(job.id).status == "running":
        alice.gitlab.cancel_job(job.id)
        alice.finished(job)


@pytest.fixture
def short_tickets(realm: Realm) -> Iterator[None]:
    """The KDC gives tickets for the file systems that end after nine seconds."""
    for name in MDS:
        realm.kdc.modprinc(name, "-maxlife 9sec")
    yield
    for name in MDS:
        realm.kdc.modprinc(name, "-maxlife 10h")


@pytest.fixture(scope="module")
def scenes(realm: Realm) -> Iterator[Scenes]:
    with Scenes(realm) as scenes:
        yield scenes
