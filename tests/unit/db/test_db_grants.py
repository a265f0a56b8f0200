"""Grants as text: one text for each grant, and only that text is a grant."""

import json
from collections.abc import Callable
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


MALFORMED = {
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
