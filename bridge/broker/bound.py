"""What an act of the broker is as a request of the API: to this a person's ticket is bound, where that is demanded.

Web carries requests here in words of our own. So that it can't make another act of them than the person asked for, the
broker says in the API's words what it is about to do, and the ticket must have been made for exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from bridge.broker.fields import files
from bridge.broker.incoming import DATA
from runner.binding import request_binding

Request = Mapping[str, Any]

_PROPOSALS: Final = "/v1/admin/proposals"
_ACTIVATIONS: Final = "/v1/admin/activations"


class _Said(NamedTuple):
    """A ``POST`` to this path of these members, by which version of what is there."""

    path: str
    body: Mapping[str, object]
    version: object = None


def _of(request: Request, *names: str) -> dict[str, object]:
    return {name: request.get(name) for name in names}


def _decided(request: Request) -> _Said:
    verb = "approve" if request.get("approve") is True else "reject"
    path = f"{_PROPOSALS}/{request.get('proposal_id')}/{verb}"
    return _Said(path, _of(request, "content_hash", "reason"), request.get("version"))


def _activated(request: Request) -> _Said:
    path = f"{_PROPOSALS}/{request.get('proposal_id')}/activate"
    return _Said(path, _of(request, "reason"), request.get("version"))


def _rolled_back(request: Request) -> _Said:
    return _Said(f"{_ACTIVATIONS}/roll-back", _of(request, "content_hash", "reason"))


def _broken(request: Request) -> _Said:
    given = files(request) if request.get(DATA) else None
    return _Said(f"{_ACTIVATIONS}/break-glass", {**_of(request, "minutes", "reason", "content_hash"), "files": given})


def _confirmed(request: Request) -> _Said:
    return _Said(f"{_ACTIVATIONS}/{request.get('number')}/confirm", _of(request, "content_hash"))


def _linked(request: Request) -> _Said:
    verb = "approve" if request.get("approve") is True else "reject"
    return _Said(f"/v1/links/{request.get('link_id')}/{verb}", _of(request, "reason"))


def _lifted(request: Request) -> _Said:
    return _Said(f"/v1/kills/{request.get('switch_id')}/lift", _of(request, "reason"))


_ACTS: Final[Mapping[str, Callable[[Request], _Said]]] = {
    "policy_decide": _decided,
    "policy_activate": _activated,
    "policy_roll_back": _rolled_back,
    "policy_break_glass": _broken,
    "policy_confirm": _confirmed,
    "kill_lift": _lifted,
    "link_decide": _linked,
}
"""The acts that demand it; the desks refuse a caller who is not bound."""


def binding_of(request: Request) -> bytes | None:
    """Return what a ticket for this request is bound to, or None where nobody asks; raises RequestRefused for files.

    Members of a wrong type are refused by the act itself.
    """
    act = _ACTS.get(str(request.get("op")))
    if act is None:
        return None
    said = act(request)
    version = said.version if type(said.version) is int else None
    return request_binding("POST", said.path, version, said.body)
