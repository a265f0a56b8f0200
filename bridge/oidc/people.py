"""Who a person is by the word of an identity provider: a signed token of it, to the principal that it names.

The provider may be any OpenID Connect one (OpenID Connect Core 1.0; access tokens as JWT, RFC 9068). The front is that
of id_tokens of jobs, and as strict: one spelling, RS256, an exact issuer and audience. Providers of people and GitLabs
of jobs are two worlds, in which no token is good for both: no issuer is in both (the settings see to it), a token that
says anything of a job is no person's, and a person's token lacks nearly all that a job's must have.

A token is shown again and again while it lives, so that life is short instead of its number being used up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.model import UnverifiedToken
from bridge.oidc.refusal import token_refused
from bridge.oidc.token import JWT, split
from bridge.oidc.verifier import LEEWAY_SECONDS, Audience, KeySource, check_signature

MAX_LIFE_SECONDS: Final = 3600
"""Longest accepted ``exp - iat``: what is stolen ends within the hour."""

TYPES: Final = frozenset({JWT, "at+jwt"})
"""Of ID tokens, and of access tokens by RFC 9068 section 2.1."""

REQUIRED: Final = ("iss", "aud", "sub", "exp", "iat")

FOREIGN: Final = frozenset(
    {"job_id", "pipeline_id", "project_id", "project_path", "job_project_id", "namespace_id", "runner_id", "events"}
)
"""Claims that no person's token has: those of a GitLab job, and of a security event such as a logout (RFC 8417)."""

NEVER: Final = frozenset({"root"})
"""Whoever a provider says this is, it is nobody; every other name must stand in ``roles.toml`` to matter."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_MAX_TEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Provider:
    """What a token of an identity provider must say, and what it then means."""

    issuer: str
    """Exact ``iss``."""
    audience: str
    """Exact ``aud``; a list is refused even if this is its only member."""
    principal_claim: str
    """Its value is ``name`` or ``name@REALM``."""
    realm: str
    """The only realm that its people are of; added where the claim has none."""
    required_claims: Mapping[str, str | int | bool]
    """Each must be there with this value, or be a list that holds it."""
    max_auth_age_seconds: int
    """Longest accepted time since the person themselves signed in (``auth_time``); 0 asks for no such claim."""
    owns_accounts: bool
    """Whether its people are taken for the owners of the accounts that have their names."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person as a provider vouches for them."""

    principal: str
    issuer: str


class PeopleVerifier:
    """Checks tokens of people; safe to use from many threads."""

    def __init__(self, providers: Iterable[Provider], keys: KeySource) -> None:
        self._providers = {one.issuer: one for one in providers}
        self._keys = keys

    def provider(self, issuer: str) -> Provider | None:
        """The provider of that exact issuer, as long as it is configured."""
        return self._providers.get(issuer)

    def verify(self, token: UnverifiedToken, now: datetime) -> SignedIn:
        """Who ``token`` says it is at the moment ``now`` (aware).

        Raises TokenRefused ``token.<reason>``, or Outage if the provider's keys are too old or never came.
        """
        parts = split(token, TYPES)
        provider = self._provider(parts.unverified_claims)
        key = self._keys.key(provider.issuer, parts.unverified_kid)
        claims = check_signature(token, key, Audience(provider.issuer, provider.audience, MAX_LIFE_SECONDS), REQUIRED)
        if claims != parts.unverified_claims:
            raise token_refused("payload", "two parsers read two payloads")
        _check_kind(claims)
        _check_times(claims, provider.max_auth_age_seconds, now.timestamp())
        _check_required(claims, provider.required_claims)
        return SignedIn(_principal(claims.get(provider.principal_claim), provider.realm), provider.issuer)

    def _provider(self, unverified_claims: Mapping[str, Any]) -> Provider:
        unverified_issuer = unverified_claims.get("iss")
        if type(unverified_issuer) is not str or unverified_issuer not in self._providers:
            raise token_refused("issuer", "iss is not a provider of people")
        return self._providers[unverified_issuer]


def _check_kind(claims: Mapping[str, Any]) -> None:
    foreign = sorted(FOREIGN & claims.keys())
    if foreign:
        raise token_refused("not_a_person", "the token is of a job or an event", claim=foreign[0])
    if type(claims["sub"]) is not str or not 0 < len(claims["sub"]) <= _MAX_TEXT:
        raise token_refused("claim_malformed", "claim sub is malformed", claim="sub")


def _check_times(claims: Mapping[str, Any], max_auth_age: int, now: float) -> None:
    """Hold the times against the injected clock (RFC 7519 section 4.1, OpenID Connect Core section 2)."""
    issued, expires = _seconds(claims, "iat"), _seconds(claims, "exp")
    not_before = _seconds(claims, "nbf") if "nbf" in claims else issued
    if expires <= issued or expires - issued > MAX_LIFE_SECONDS:
        raise token_refused("life", f"exp - iat is not within 1..{MAX_LIFE_SECONDS} s", life=expires - issued)
    if now >= expires + LEEWAY_SECONDS:
        raise token_refused("expired", "exp has passed", late_seconds=int(now - expires))
    if now < max(issued, not_before) - LEEWAY_SECONDS:
        raise token_refused("not_yet", "iat or nbf lies in the future", early_seconds=int(issued - now))
    if max_auth_age:
        age = now - _seconds(claims, "auth_time")
        if not -LEEWAY_SECONDS <= age <= max_auth_age:
            raise token_refused("too_old", f"auth_time is not within {max_auth_age} s", age_seconds=int(age))


def _seconds(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if type(value) is not int or value <= 0:
        raise token_refused("claim_malformed", f"claim {name} is malformed or missing", claim=name)
    return value


def _check_required(claims: Mapping[str, Any], required: Mapping[str, str | int | bool]) -> None:
    for name, wanted in required.items():
        found = claims.get(name)
        if not any(_same(one, wanted) for one in (found if type(found) is list else [found])):
            raise token_refused("claim_required", f"claim {name} is not what the settings ask for", claim=name)


def _same(found: object, wanted: str | int | bool) -> bool:  # noqa: FBT001 - a claim's value
    """Equal and of the same type: True is no 1."""
    return type(found) is type(wanted) and found == wanted


def _principal(value: object, realm: str) -> str:
    """The principal that a claim names: one component, spelled as an account, of the provider's own realm."""
    if type(value) is not str:
        raise token_refused("principal", "the principal's claim is missing or no text")
    name, at, of = value.partition("@")
    if _NAME.fullmatch(name) is None or name in NEVER or (at and of != realm):
        raise token_refused("principal", f"not a person's name of {realm}")
    return f"{name}@{realm}"
