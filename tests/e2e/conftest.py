"""What end-to-end tests share: one realm, its GitLab, and two people who push."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from realm import Realm, forge
from realm.demo.scenes import Scenes
from realm.gitlab.client import GitLabControl
from tests.e2e.person import Person


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


@pytest.fixture(scope="module")
def scenes(realm: Realm) -> Iterator[Scenes]:
    with Scenes(realm) as scenes:
        yield scenes
