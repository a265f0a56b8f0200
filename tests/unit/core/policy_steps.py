"""Steps that people take with policies, for tests."""

from __future__ import annotations

from typing import Any

from bench import Broker
from policy_site import (
    texts,
    who,
)

from bridge.proposals import Proposal


def with_people(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    broker.use_texts(texts())
    return broker


def admit(broker: Broker, job_id: int = 301) -> Any:
    """Alice's job."""
    return broker.admission.admit(broker.evidence(job_id))


def decide(broker: Broker, one: Proposal, name: str, **changes: Any) -> Proposal:
    """Approve something, or nearly."""
    caller = changes.pop("caller", None) or who(broker, name)
    named = {"proposal_id": one.proposal_id, "version": one.version, "read_hash": one.content_hash}
    return broker.proposing.decide(caller, **{**named, "approve": True, "reason": "read it", **changes})


def rewrite(broker: Broker, one: Proposal, files: dict[str, str], name: str = "ada/admin") -> Proposal:
    """Put other content into it."""
    return broker.proposing.rewrite(who(broker, name), one.proposal_id, one.version, files)


def floor(number: int) -> dict[str, str]:
    """Policies with another floor of uids."""
    every = texts()
    return every | {"accounts.toml": every["accounts.toml"].replace("uid = 1000", f"uid = {number}", 1)}


def with_less_denied(name: str) -> dict[str, str]:
    """Policies that deny one account or group less."""
    every = texts("evil")
    assert f'"{name}", ' in every["accounts.toml"]
    return every | {"accounts.toml": every["accounts.toml"].replace(f'"{name}", ', "")}
