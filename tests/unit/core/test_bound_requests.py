"""What decides over policy, or lets stopped jobs go on, is taken only from a ticket that was made for that very act."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from bench import Broker, refused

from bridge.broker.bound import binding_of
from bridge.broker.incoming import DATA
from bridge.broker.peer import Peer
from bridge.errors import BridgeError
from bridge.people.caller import Caller
from runner.binding import request_binding
from tests.api.people_web import LINKS, ROLES
from tests.fakes import REALM

WEB = Peer(pid=1, uid=930, gid=930)
ID, HASH, OTHER = "7F3K-9QXM-2DTB", "0" * 64, "1" * 64
FILES = {"limits.toml": "# é\n", "a/b.cedar": "x"}

ACTS: dict[str, tuple[dict[str, Any], tuple[str, int | None, dict[str, Any]]]] = {
    "approve": (
        {"op": "policy_decide", "proposal_id": ID, "version": 2, "content_hash": HASH, "approve": True, "reason": "r"},
        (f"/v1/admin/proposals/{ID}/approve", 2, {"content_hash": HASH, "reason": "r"}),
    ),
    "reject": (
        {"op": "policy_decide", "proposal_id": ID, "version": 2, "content_hash": HASH, "approve": False, "reason": "r"},
        (f"/v1/admin/proposals/{ID}/reject", 2, {"reason": "r", "content_hash": HASH}),
    ),
    "activate": (
        {"op": "policy_activate", "proposal_id": ID, "version": 3, "reason": "r"},
        (f"/v1/admin/proposals/{ID}/activate", 3, {"reason": "r"}),
    ),
    "roll back": (
        {"op": "policy_roll_back", "content_hash": HASH, "reason": "r"},
        ("/v1/admin/activations/roll-back", None, {"content_hash": HASH, "reason": "r"}),
    ),
    "break glass by hash": (
        {"op": "policy_break_glass", "minutes": 9, "reason": "r", "content_hash": HASH},
        ("/v1/admin/activations/break-glass", None, {"minutes": 9, "reason": "r", "content_hash": HASH}),
    ),
    "break glass by files": (
        {
            "op": "policy_break_glass",
            "minutes": 9,
            "reason": "r",
            "content_hash": None,
            DATA: json.dumps(FILES, ensure_ascii=False).encode(),
        },
        ("/v1/admin/activations/break-glass", None, {"minutes": 9, "reason": "r", "files": FILES}),
    ),
    "confirm": (
        {"op": "policy_confirm", "number": 4, "content_hash": HASH},
        ("/v1/admin/activations/4/confirm", None, {"content_hash": HASH}),
    ),
    "approve a link": (
        {"op": "link_decide", "link_id": ID, "approve": True, "reason": "r"},
        (f"/v1/links/{ID}/approve", None, {"reason": "r"}),
    ),
    "reject a link": (
        {"op": "link_decide", "link_id": ID, "approve": False, "reason": "r"},
        (f"/v1/links/{ID}/reject", None, {"reason": "r"}),
    ),
    "lift": ({"op": "kill_lift", "switch_id": ID, "reason": "r"}, (f"/v1/kills/{ID}/lift", None, {"reason": "r"})),
}
"""What web asks of the broker, and what the person's program bound its ticket to."""

CHANGED: Mapping[str, object] = {
    "proposal_id": "0000-0000-0000",
    "switch_id": "0000-0000-0000",
    "link_id": "0000-0000-0000",
    "version": 9,
    "content_hash": OTHER,
    "reason": "another",
    "minutes": 240,
    "number": 5,
    DATA: json.dumps({**FILES, "limits.toml": "# more\n"}).encode(),
}


def handlers(broker: Broker) -> dict[str, Callable[..., Any]]:
    """What the broker answers people."""
    return {**broker.people.handlers(), **broker.policy_ops.handlers()}


def ask(broker: Broker, request: Mapping[str, Any], authorization: str) -> BridgeError:
    """Have web ask; nothing that is named here exists, so that whoever gets through is told so."""
    return refused(lambda: handlers(broker)[str(request["op"])]({**request, "authorization": authorization}, WEB))


@pytest.fixture
def staffed(broker: Broker) -> Broker:
    """A broker whose bundle gives roles."""
    broker.use(
        accounts=LINKS, roles=f'{ROLES}\n[[member]]\nprincipal = "max@{REALM}"\nroles = ["approver", "operator"]\n'
    )
    return broker


def ticket(made_for: bytes | None) -> str:
    """A ticket of somebody with every role that these acts need."""
    return f"Negotiate max@{REALM}#{'' if made_for is None else made_for.hex()}"


@pytest.mark.threat("T21")
@pytest.mark.parametrize("act", ACTS)
def test_a_ticket_for_this_very_request_counts(staffed: Broker, act: str) -> None:
    request, (path, version, body) = ACTS[act]
    made_for = request_binding("POST", path, version, body)
    assert binding_of(request) == made_for
    assert ask(staffed, request, ticket(made_for)).code not in ("negotiate.unbound", "caller.not_bound", "caller.role")


@pytest.mark.threat("T21")
@pytest.mark.parametrize(
    ("act", "member"), [(act, name) for act, (request, _) in ACTS.items() for name in CHANGED if request.get(name)]
)
def test_no_web_spends_a_ticket_on_another_content(staffed: Broker, act: str, member: str) -> None:
    request, (path, version, body) = ACTS[act]
    shown = ticket(request_binding("POST", path, version, body))
    error = ask(staffed, {**request, member: CHANGED[member]}, shown)
    assert error.code == "negotiate.unbound"
    (record,) = staffed.records(phase="denied")
    assert (record["code"], record["reference"]) == (error.code, error.reference)
    assert record["detail"]["act"] == request["op"]


@pytest.mark.threat("T21")
@pytest.mark.parametrize("act", ACTS)
def test_no_web_spends_a_ticket_on_another_act(staffed: Broker, act: str) -> None:
    for other, (_, (path, version, body)) in ACTS.items():
        if other != act:
            shown = ticket(request_binding("POST", path, version, body))
            assert ask(staffed, ACTS[act][0], shown).code == "negotiate.unbound"


@pytest.mark.threat("T21")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("shown", ["unbound ticket", "session"])
def test_what_is_bound_to_no_request_decides_nothing(staffed: Broker, act: str, shown: str) -> None:
    authorization = ticket(None)
    if shown == "session":
        opened = staffed.sessions.open(staffed.caller(f"max@{REALM}"))
        authorization = f"Session {opened.token}"
    error = ask(staffed, ACTS[act][0], authorization)
    assert error.code == "caller.not_bound"
    (record,) = staffed.records(phase="denied")
    assert (record["code"], record["detail"]["by"]) == (error.code, f"max@{REALM}")


def test_a_bound_ticket_is_as_good_as_any_where_nobody_asks(staffed: Broker) -> None:
    header, data = handlers(staffed)["whoami"](
        {"op": "whoami", "authorization": ticket(request_binding("GET", "/v1/me", None, {}))}, WEB
    )
    assert header["reply"]
    assert json.loads(data)["principal"] == f"max@{REALM}"


def test_root_on_this_machine_needs_no_ticket() -> None:
    Caller("local:root(0)", None, frozenset()).require_bound()
