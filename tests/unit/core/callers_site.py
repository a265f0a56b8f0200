"""People and programs with their credentials, for tests of who is who."""

from __future__ import annotations

import json
from typing import Any

import jwt

from bridge.errors import TokenRefused
from bridge.people.caller import Caller
from bridge.people.sessions import OpenedSession
from tests.fakes import REALM
from tests.unit.core.bench import KID, PROVIDER, Broker, refused

ROLES = "".join(
    f'\n[[member]]\nprincipal = "{who}@{REALM}"\nroles = {json.dumps(roles)}\n'
    for who, roles in {
        "alice": ["author", "approver", "viewer"],
        "oli": ["operator"],
        "vic": ["viewer"],
        "aud": ["auditor"],
    }.items()
)


def with_roles(broker: Broker) -> Broker:
    """A broker whose policy gives alice, oli, vic and aud their roles."""
    broker.use(roles=ROLES)
    return broker


def shows(broker: Broker, value: str) -> Caller:
    """Whoever sends this ``Authorization``."""
    return broker.people.callers.by_authorization(value)


def person(broker: Broker, who: str) -> Caller:
    """Somebody with a ticket."""
    return broker.caller(f"{who}@{REALM}")


def secret_of(broker: Broker, who: str, *scopes: str, days: int = 30) -> str:
    """The secret of a new API token."""
    return broker.tokens.create(person(broker, who), scopes, days, "nightly").secret


def session_of(broker: Broker, caller: Caller) -> OpenedSession:
    """A new session."""
    return broker.sessions.open(caller)


def signed_in(broker: Broker, **changes: Any) -> str:
    """A token of the identity provider."""
    now = int(broker.clock().timestamp())
    claims = {
        "iss": PROVIDER.issuer,
        "aud": PROVIDER.audience,
        "sub": "1",
        "iat": now,
        "exp": now + 300,
        "auth_time": now,
        "preferred_username": "alice",
    }
    return jwt.encode(claims | changes, broker.key, algorithm="RS256", headers={"kid": KID})


def says_no(broker: Broker, value: str, code: str = "caller.unknown") -> None:
    error = refused(lambda: shows(broker, value))
    assert (type(error), error.code) == (TokenRefused, code)
