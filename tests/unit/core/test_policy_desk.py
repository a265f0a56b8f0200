"""The broker's operations on policies: who reads, what is shown, and what a frame may hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from bench import Broker, refused
from policy_site import (
    draft,
    submitted,
    texts,
    who,
)
from policy_steps import with_people
from sqlalchemy import text

from bridge.broker.client import BrokerClient
from bridge.errors import BridgeError
from bridge.people.bundling import MAX_BUNDLE_BYTES
from bridge.proposals import person_of


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


@pytest.mark.threat("T40")
def test_nobody_without_a_role_reads_policy(broker: Broker) -> None:
    one, mallory = draft(broker), who(broker, "mallory")
    reading = broker.reading
    questions: list[Callable[[], object]] = [
        lambda: reading.proposals(mallory),
        lambda: reading.proposal(mallory, one.proposal_id),
        lambda: reading.bundle(mallory, one.content_hash),
        lambda: reading.in_force(mallory),
        lambda: reading.history(mallory),
        lambda: reading.impact(mallory, None),
    ]
    assert {refused(question).code for question in questions} == {"caller.role"}


@pytest.mark.threat("T40")
def test_nobody_is_shown_other_files_than_they_would_approve(broker: Broker) -> None:
    one = submitted(broker, texts("evil"))
    with broker.engine.begin() as connection:
        statement = text("UPDATE bundles SET files = :files WHERE content_hash = :hash")
        connection.execute(statement, {"files": json.dumps(texts("two")), "hash": one.content_hash})
    ben = who(broker, "ben/admin")
    assert refused(lambda: broker.reading.proposal(ben, one.proposal_id)).code == "policy.content"
    assert refused(lambda: broker.reading.bundle(ben, one.content_hash)).code == "policy.content"


@pytest.mark.parametrize(
    ("principal", "person"),
    [
        ("alice@REALM.TEST", "alice@realm.test"),
        ("alice/admin@REALM.TEST", "alice@realm.test"),
        ("Alice@REALM.TEST", "alice@realm.test"),
        ("alice@OTHER.TEST", "alice@other.test"),
        ("local:root(0)", "@local:root(0)"),
    ],
)
def test_a_person_is_one_by_whatever_principal(principal: str, person: str) -> None:
    assert person_of(principal) == person


def ask_broker(client: BrokerClient, name: str, op: str, data: bytes = b"", **fields: Any) -> Any:
    """Ask as web does for somebody."""
    result, _ = client.ask_for(op, data=data, authorization=f"Negotiate {name}@REALM.TEST", **fields)
    return result


def as_data(files: dict[str, str]) -> bytes:
    """Files as they travel."""
    return json.dumps(files).encode()


def test_the_whole_way_over_the_brokers_socket(broker: Broker, client: BrokerClient) -> None:
    files = texts("one")
    one = ask_broker(client, "ada/admin", "policy_propose", as_data(files), title="more nodes")["proposal"]
    named = {"proposal_id": one["proposal_id"]}
    one = ask_broker(client, "ada/admin", "policy_rewrite", as_data(files), version=1, **named)["proposal"]
    one = ask_broker(client, "ada/admin", "policy_submit", version=2, **named)["proposal"]
    assert (one["state"], one["version"], one["decided_by"]) == ("submitted", 3, None)
    read = ask_broker(client, "ben/admin", "policy_proposals", **named)
    assert (read["proposal"], read["files"]) == (one, files)
    decision = {"content_hash": one["content_hash"], "approve": True, "reason": "read it"}
    ask_broker(client, "ben/admin", "policy_decide", version=3, **named, **decision)
    activation = ask_broker(client, "olga/admin", "policy_activate", version=4, reason="as agreed", **named)
    assert activation["activation"]["kind"] == "activate"
    active = ask_broker(client, "vic", "policy_active")
    assert (active["active"]["content_hash"], active["active"]["number"]) == (one["content_hash"], 1)
    assert active["files"] == files
    first = one["base_hash"]
    assert ask_broker(client, "vic", "policy_bundle", content_hash=first)["files"] == texts()
    ask_broker(client, "olga/admin", "policy_roll_back", content_hash=first, reason="too slow")
    asked = ask_broker(client, "olga/admin", "policy_break_glass", as_data(texts("two")), minutes=30, reason="fire")[
        "activation"
    ]
    ask_broker(client, "omar/admin", "policy_confirm", number=3, content_hash=asked["content_hash"])
    history = ask_broker(client, "vic", "policy_history")
    assert [one["kind"] for one in history["activations"]] == ["break_glass", "roll_back", "activate"]
    assert history["in_force"] == 3
    kept = ask_broker(client, "olga/admin", "policy_break_glass", content_hash=first, minutes=30, reason="fire")
    assert kept["activation"]["second"] is None
    assert ask_broker(client, "vic", "policy_impact") == {"content_hash": asked["content_hash"], "runs": []}
    (only,) = ask_broker(client, "vic", "policy_proposals")["proposals"]
    assert only["state"] == "activated"
    second = ask_broker(client, "ada/admin", "policy_propose", b"{}", title="nothing")["proposal"]
    gone = ask_broker(client, "ada/admin", "policy_withdraw", proposal_id=second["proposal_id"], version=1)
    assert gone["proposal"]["state"] == "withdrawn"


def test_the_largest_bundle_fits_a_frame_both_ways(broker: Broker, client: BrokerClient) -> None:
    line = "# " + "é" * 60 + '"\\\n'
    files = texts() | {"people.cedar": ""}
    files["limits.toml"] = line * ((MAX_BUNDLE_BYTES - 100_000) // len(line.encode()))
    data = json.dumps(files, ensure_ascii=False).encode()
    one = ask_broker(client, "ada/admin", "policy_propose", data, title="large")["proposal"]
    assert ask_broker(client, "vic", "policy_proposals", proposal_id=one["proposal_id"])["files"] == files


@pytest.mark.parametrize(
    "data",
    [b"[]", b"{", b'{"a": 1}', b'{"limits.toml": "a", "limits.toml": "b"}', b"\xff", b"null", b"[" * 100_000],
)
def test_no_files_are_taken_from_what_is_no_object_of_texts(client: BrokerClient, broker: Broker, data: bytes) -> None:
    error = refused(lambda: ask_broker(client, "ada/admin", "policy_propose", data, title="x"))
    assert error.code == "policy.files"


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("policy_propose", {"title": 1}),
        ("policy_propose", {"title": "x", "data": "text"}),
        ("policy_submit", {"proposal_id": "x", "version": "1"}),
        ("policy_submit", {"proposal_id": "x", "version": True}),
        ("policy_decide", {"proposal_id": "x", "version": 1, "content_hash": "y", "reason": "z", "approve": "yes"}),
        ("policy_confirm", {"number": 1.0, "content_hash": "x"}),
    ],
)
def test_a_request_that_web_would_not_send_is_a_defect(client: BrokerClient, op: str, fields: dict[str, Any]) -> None:
    data = b"{}" if op == "policy_propose" and "data" not in fields else b""
    asked = {name: value for name, value in fields.items() if name != "data"}
    error = refused(lambda: client.ask(op, data, authorization="Negotiate ada/admin@REALM.TEST", **asked))
    assert isinstance(error, BridgeError)
    assert error.code == "broker.malformed"
