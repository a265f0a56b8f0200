"""What the stand-in can be told to do wrong, as a table of fault kinds and a counter for each."""

import re
import threading
from dataclasses import dataclass
from typing import Any

JWKS = r"^/oauth/discovery/keys$"
DISCOVERY = r"^/\.well-known/openid-configuration$"
JOB_API = r"^/api/v4/job$"
REQUEST = r"^/api/v4/jobs/request$"
TRACE = r"^/api/v4/jobs/\d+/trace$"
UPDATE = r"^/api/v4/jobs/\d+$"
ARTIFACTS = r"^/api/v4/jobs/\d+/artifacts$"
GIT = r"^/.+\.git/"
USERS = r"^/api/v4/users?(/|$)"
AUTHORIZE = r"^/oauth/authorize$"
CODE_EXCHANGE = r"^/oauth/token$"
USERINFO = r"^/oauth/userinfo$"
REVOKE = r"^/oauth/revoke$"

_PLACES = {
    "jwks": (JWKS, "GET"),
    "discovery": (DISCOVERY, "GET"),
    "job_api": (JOB_API, "GET"),
    "users_api": (USERS, "GET"),
    "request": (REQUEST, "POST"),
    "patch": (TRACE, "PATCH"),
    "put": (UPDATE, "PUT"),
    "artifacts": (ARTIFACTS, "POST"),
    "git": (GIT, ""),
    "oauth_authorize": (AUTHORIZE, ""),
    "oauth_token": (CODE_EXCHANGE, "POST"),
    "oauth_userinfo": (USERINFO, ""),
    "oauth_revoke": (REVOKE, "POST"),
}

ACTIONS = ("500", "503", "401", "slow", "redirect", "oversize", "garbage", "lies", "drop", "lost", "verbatim")
"""What a fault does.

500, 503 and 401 answer so; slow answers late; redirect sends a 302 to `target`; oversize pads the true answer; garbage
is not JSON; lies merges `changes` into the true JSON answer; drop ends the connection half-way; lost does what was
asked and then answers 502, as a proxy does when the answer gets lost; verbatim does what was asked and then answers
`status` (200) with exactly the text `body`, in which `{answer}` stands for the true answer.
"""

KINDS = frozenset(f"{place}_{action}" for place in _PLACES for action in ACTIONS)


@dataclass(frozen=True)
class Fault:
    """One armed fault: what to do, where, and details (`seconds`, `target`, `bytes`, `changes`, `status`, `body`)."""

    action: str
    pattern: re.Pattern[str]
    method: str
    details: dict[str, Any]


class Faults:
    """The armed faults; each is used up after its number of times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[str, tuple[Fault, int]] = {}

    def arm(self, kind: str, times: int, details: dict[str, Any]) -> None:
        """Let the next `times` matching requests go wrong.

        Raises:
            ValueError: the kind is none of KINDS.
        """
        if kind not in KINDS:
            raise ValueError(f"unknown misbehaviour {kind!r}; known: {', '.join(sorted(KINDS))}")
        place, _, action = kind.rpartition("_")
        pattern, method = _PLACES[place]
        with self._lock:
            self._armed[kind] = (Fault(action, re.compile(pattern), method, details), times)

    def clear(self) -> None:
        """Behave again."""
        with self._lock:
            self._armed.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, counted down by one."""
        with self._lock:
            for kind, (fault, left) in list(self._armed.items()):
                if fault.pattern.search(path) and fault.method in ("", method):
                    if left <= 1:
                        del self._armed[kind]
                    else:
                        self._armed[kind] = (fault, left - 1)
                    return fault
        return None
