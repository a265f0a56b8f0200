"""A link or a kill switch that is asked for twice under one idempotency key is made once, as on the admin API."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.people_web import Site, refused
from tests.unit.core.bench import ISSUER

LINK = {"issuer": ISSUER, "user_id": 103, "account": "mallory", "reason": "new here"}
SWITCH = {"scope": "account", "account": "alice", "reason": "laptop stolen"}
OTHER_LINK, OTHER_SWITCH = {**LINK, "reason": "another"}, {**SWITCH, "account": "bob"}

WHAT = [
    pytest.param("ann", "/v1/links", LINK, OTHER_LINK, "link", id="link"),
    pytest.param("oli", "/v1/kills", SWITCH, OTHER_SWITCH, "switch", id="switch"),
]


@pytest.mark.parametrize(("who", "path", "body", "other", "member"), WHAT)
def test_the_same_request_under_a_key_is_done_once(
    web_site: Site, who: str, path: str, body: Any, other: Any, member: str
) -> None:
    key = str(uuid.uuid4())
    before = web_site.broker.register.read().revision
    answers = [web_site.api(who, "POST", path, body, idempotency_key=key) for _ in range(3)]
    assert {one.status_code for one in answers} == {201}, answers[0].text
    assert len({one.text for one in answers}) == 1
    assert web_site.broker.register.read().revision == before + 1
    assert answers[0].json()[member]["reason"] == body["reason"]

    refused(web_site.api(who, "POST", path, other, idempotency_key=key), 422, "idempotency.reused")
    refused(web_site.api(who, "POST", path, body, idempotency_key="short"), 422, "idempotency.key")
    assert web_site.broker.register.read().revision == before + 1


@pytest.mark.parametrize(("who", "path", "body", "other", "member"), WHAT)
def test_what_was_refused_can_be_asked_again_under_its_key(
    web_site: Site, who: str, path: str, body: Any, other: Any, member: str
) -> None:
    key = str(uuid.uuid4())
    refused(web_site.api("vic", "POST", path, body, idempotency_key=key), 403, "caller.role")
    refused(web_site.api("vic", "POST", path, body, idempotency_key=key), 403, "caller.role")
    assert web_site.api(who, "POST", path, body, idempotency_key=key).status_code == 201
