"""What may be in a stream: tickets of the one account whose stream it is, for listed services, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from realm import Realm
from realm.people import PEOPLE
from realm.principals import BRIDGE_HTTP, DELEGATION_TARGETS, KEYTABS
from realm.topology import KRB_REALM, spec
from realm.workspace import CHECKOUT
from tests.tap import keys
from tests.tap.kerberos import RENEWABLE, Sight

_CLOCK_SECONDS = 60
_SSH = re.compile(r"ssh #\d+ as (\S+)")
_NODE_ANSWER = re.compile(rb"x-ci-bridge-cache: \S*krb5cc_(\d+)", re.IGNORECASE)
_WEB = f"{BRIDGE_HTTP}@{KRB_REALM}"
_TO_BROKER = ": socket AF_UNIX to "
"""Web passes on what callers show it of themselves, to the one process that has the key for it."""

_WITH_KEYTAB = {f"{keytab.principal}@{KRB_REALM}" for keytab in KEYTABS}
_LISTED_HERE = {f"host/{spec('node1').fqdn}@{KRB_REALM}"}
"""What tests that are a bridge themselves let the KDC delegate to besides."""


@dataclass(frozen=True)
class Recorded:
    """What the audit log says of a ticket."""

    client: str
    use: str
    instance: str


class Law:
    """For one realm; opens each ticket once."""

    def __init__(self, realm: Realm) -> None:
        self._realm = realm
        self._opened: dict[str, keys.Inside | None] = {}
        self._listed = {f"{target}@{KRB_REALM}" for target in DELEGATION_TARGETS}

    def faults(
        self, name: str, owner: str | None, moment: float, sight: Sight, recorded: Mapping[str, Recorded]
    ) -> Iterator[str]:
        """Everything that is wrong with what was seen in the stream of that name at that time."""
        yield from sight.faults
        if sight.what.startswith("ticket") and sight.server == _WEB and _TO_BROKER in name:
            return
        if sight.server not in {None, *self._listed, *(_LISTED_HERE if name.startswith("here: ") else ())}:
            yield f"{sight.server} is no listed target"
        if sight.end is not None and sight.end > moment + longest_minutes() * 60 + _CLOCK_SECONDS:
            yield f"it ends {sight.end - moment:.0f} seconds later, and policy allows {longest_minutes()} minutes"
        if sight.client is not None and owner is not None and sight.client != owner:
            yield f"it is of {sight.client}, in a stream of {owner}"
        if sight.ticket_id is not None and not sight.faults:
            yield from self._inside(name, owner, sight, recorded)

    def _inside(self, name: str, owner: str | None, sight: Sight, recorded: Mapping[str, Recorded]) -> Iterator[str]:
        assert sight.ticket_id is not None
        if sight.ticket_id not in self._opened:
            files = {(keytab.host, keytab.path) for keytab in KEYTABS}
            paths = [self._realm.host(host).path(path) for host, path in sorted(files) if host in self._realm.hosts]
            self._opened[sight.ticket_id] = keys.inside(sight.ticket, paths)
        known = self._opened[sight.ticket_id]
        if known is None and sight.server in _WITH_KEYTAB:
            yield "the key of its service does not open it"
        if known is not None:
            expected = sight.client or owner
            if expected is not None and known.client != expected:
                yield f"inside it is of {known.client}, outside of {expected}"
            if known.flags & RENEWABLE or known.renew_till:
                yield "inside it is renewable"
            if sight.end is not None and known.end != sight.end:
                yield "inside it ends at another time than outside"
        if name.startswith("here: "):
            return
        entry = recorded.get(sight.ticket_id)
        if entry is None:
            yield "no outcome in the audit log has its id"
        elif {sight.client, known.client if known else None} - {None, entry.client}:
            yield f"the audit log has it as of {entry.client}"


def owner_of(name: str, before: bytes) -> str | None:
    """Whose a stream is: by the account of an SSH login, a file's owner, or the uid in a node's answer; else None.

    `before` is what went before on the stream.
    """
    if found := _SSH.search(name):
        return f"{found[1]}@{KRB_REALM}"
    if name.startswith("file of "):
        return _of_uid(int(name.split()[2]))
    if answers := _NODE_ANSWER.findall(before):
        return _of_uid(int(answers[-1]))
    return None


def _of_uid(uid: int) -> str:
    names = [user.name for user in PEOPLE if user.uid == uid]
    return f"{names[0] if names else f'uid {uid}'}@{KRB_REALM}"


@cache
def longest_minutes() -> int:
    """The longest that any limits of the shipped policy let a ticket live."""
    return max(_minutes(tomllib.loads((CHECKOUT / "policies" / "limits.toml").read_text("utf-8"))))


def _minutes(table: Mapping[str, object]) -> Iterator[int]:
    for name, value in table.items():
        if name == "ticket_minutes" and isinstance(value, int):
            yield value
        elif isinstance(value, dict):
            yield from _minutes(value)
