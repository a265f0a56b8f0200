"""Grants as text: one text for each grant, and only that text is a grant."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from ledger_example import grant, identity

from bridge import grants
from bridge.errors import Defect
from bridge.model import EvidenceLevel, ExternalIdentity, Flavor, Mount, OnExcess


@given(st.text(max_size=20), st.none() | st.text(max_size=5), st.booleans())
def test_every_grant_comes_back_as_it_was(login: str, environment: str | None, protected: bool) -> None:
    who = identity(user_login=login, environment=environment, ref_protected=protected)
    data = grants.to_json(grant(who))
    assert grants.from_json(data) == grant(who)
    assert data == rfc8785.dumps(json.loads(data))


def test_one_moment_has_one_text_in_every_time_zone() -> None:
    who = identity()
    moved = replace(who, token_expires_at=who.token_expires_at.astimezone(timezone(timedelta(hours=2))))
    assert grants.to_json(grant(moved)) == grants.to_json(grant(who))


def edit(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The canonical text of a grant after a change."""
    members = json.loads(grants.to_json(grant()))
    change(members)
    return rfc8785.dumps(members)


FACTS: dict[str, Any] = {
    "evidence": EvidenceLevel.INTROSPECTED,
    "project_path": None,
    "namespace_id": None,
    "runner_environment": None,
    "ref_path": "refs/heads/main",
    "user_access_level": "developer",
    "ci_config_ref_uri": "gitlab.realm.test/chem/water//.gitlab-ci.yml@refs/heads/main",
    "ci_config_sha": "a" * 40,
    "environment_protected": False,
    "deployment_tier": "production",
    "user_identities": (ExternalIdentity("ldapmain", "uid=é,dc=x"), ExternalIdentity("saml", "x")),
    "groups": ("chem", "chem/water"),
}


def test_every_fact_of_an_identity_comes_back() -> None:
    who = identity(**FACTS)
    assert grants.from_json(grants.to_json(grant(who))) == grant(who)


@pytest.mark.parametrize("name", ["environment_protected", "user_identities", "groups"])
@pytest.mark.parametrize("value", [None, False, ()])
def test_unknown_stays_apart_from_no_and_from_none_at_all(name: str, value: object) -> None:
    if (name == "environment_protected") == (value == ()):
        return
    who = identity(**{name: value})
    assert getattr(grants.from_json(grants.to_json(grant(who))).identity, name) == value


LATER = {
    "identity": (
        "evidence",
        "ref_path",
        "user_access_level",
        "ci_config_ref_uri",
        "ci_config_sha",
        "environment_protected",
        "deployment_tier",
        "user_identities",
        "groups",
    ),
    "limits": ("targets", "mounts", "mdt_flavor", "ost_flavor", "evidence", "on_excess"),
    "cluster": ("mounts", "login_hosts"),
    "grant": ("notes", "link_id"),
}
"""What the first release did not write."""

CHOICES = ("limits", "cluster", "grant")
"""Where the second still wrote less."""


def early(
    change: Callable[[dict[str, Any]], object] = lambda _: None, places: Sequence[str] = (*CHOICES, "identity")
) -> bytes:
    """A grant as the first release wrote it, or one that lacks what came later in some places only, after a change."""

    def strip(members: dict[str, Any]) -> None:
        for place in places:
            for name in LATER[place]:
                del (members if place == "grant" else members[place])[name]
        change(members)

    return edit(strip)


def test_a_grant_of_the_first_release_can_be_read_and_came_from_an_id_token() -> None:
    read = grants.from_json(early())
    assert read == grant(identity())
    assert read.identity.evidence is EvidenceLevel.SIGNED


def test_a_grant_that_says_no_mounts_and_flavors_can_be_read_and_gives_what_it_gave() -> None:
    read = grants.from_json(early(places=CHOICES))
    assert (read, read.link_id) == (grant(), None)
    assert (read.limits.targets, read.limits.mounts, read.notes) == (None, None, ())
    assert (read.limits.on_excess, read.limits.mdt_flavor) == (OnExcess.REFUSE, Flavor.NULL)


def test_every_choice_of_a_limit_comes_back() -> None:
    mount = Mount("scratch", "scr", ("10.0.0.1@tcp",), "/", "/scratch", Flavor.KRB5I, Flavor.KRB5N, 7)
    given = replace(
        grant(),
        limits=replace(
            grant().limits,
            targets=("lustre_mds/mds1.realm.test",),
            mounts=(),
            mdt_flavor=Flavor.KRB5P,
            evidence=EvidenceLevel.SIGNED,
            on_excess=OnExcess.CLAMP,
        ),
        cluster=replace(grant().cluster, mounts=(mount,)),
        notes=("less",),
    )
    assert grants.from_json(grants.to_json(given)) == given


MALFORMED = {
    "first release with a link": early(lambda one: one.update(link_id=None)),
    "link as a number": edit(lambda one: one.update(link_id=1)),
    "some later members": edit(lambda one: one["identity"].pop("groups")),
    "no mounts only": edit(lambda one: one["limits"].pop("mounts")),
    "no limits' choices only": early(places=["limits"]),
    "first identity with later limits": early(places=["identity"]),
    "a flavor that is none": edit(lambda one: one["limits"].update(ost_flavor="krb5")),
    "no evidence": edit(lambda one: one["identity"].pop("evidence")),
    "early and more": early(lambda one: one["identity"].update(groups=None)),
    "early with spaces": early().replace(b":", b": ", 1),
    "early and naive": early(lambda one: one["identity"].update(token_expires_at="2026-11-20T12:00:00.000000")),
    "another level": edit(lambda one: one["identity"].update(evidence="none")),
    "level as null": edit(lambda one: one["identity"].update(evidence=None)),
    "identity a list": edit(lambda one: one.update(identity=[])),
    "a login with more": edit(
        lambda one: one["identity"].update(user_identities=[{"provider": "a", "extern_uid": "b", "c": "d"}])
    ),
    "empty": b"",
    "not JSON": b"{",
    "a list": b"[]",
    "spaces": grants.to_json(grant()).replace(b":", b": ", 1),
    "missing member": edit(lambda one: one.pop("reason")),
    "extra member": edit(lambda one: one.update(extra=1)),
    "nested extra": edit(lambda one: one["account"].update(extra=1)),
    "uid as text": edit(lambda one: one["account"].update(uid="20001")),
    "uid as boolean": edit(lambda one: one["account"].update(uid=True)),
    "protected as text": edit(lambda one: one["identity"].update(ref_protected="true")),
    "groups as text": edit(lambda one: one["account"].update(groups="chem")),
    "null for an object": edit(lambda one: one.update(plan=None)),
    "null name": edit(lambda one: one["account"].update(name=None)),
    "no time": edit(lambda one: one["identity"].update(token_expires_at="soon")),
    "naive time": edit(lambda one: one["identity"].update(token_expires_at="2026-11-20T12:00:00.000000")),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_anything_else_is_no_grant(kind: str) -> None:
    with pytest.raises(Defect) as caught:
        grants.from_json(MALFORMED[kind])
    assert caught.value.code == "grant.malformed"


def test_every_login_node_comes_back() -> None:
    cluster = replace(grant().cluster, login_hosts=("two.realm.test",))
    made = replace(grant(), cluster=cluster)
    assert grants.from_json(grants.to_json(made)) == made
