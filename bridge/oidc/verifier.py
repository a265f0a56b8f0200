"""The strict front of every id_token: from text of a stranger to claims whose signature, issuer and times are checked.

PyJWT alone takes tokens that can be read in two ways (padding, duplicate members, string times, ``jku`` headers), so
that nothing reaches it before steps 1 to 6 are passed.

    1 size and segments      one canonical spelling
    2 header                 alg, kid, typ; RS256 by equality
    3 payload                JSON that has one reading
    4 issuer                 exact match, before any key is looked up
    5 key                    an RSA public key of that issuer
    6 signature, iss, aud    PyJWT, every option written out
    7 times                  iat, nbf, exp against the injected clock
    8 claims                 the tables of ``oidc.claims``
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bridge.model import SignedClaims, UnverifiedToken
from bridge.oidc.claims import REQUIRED, check_claims
from bridge.oidc.refusal import token_refused
from bridge.oidc.token import ALGORITHM, split

LEEWAY_SECONDS: Final = 30
"""Clocks of GitLab and the bridge may differ by this much."""

MAX_AGE_SECONDS: Final = 600
"""GitLab lets a token live as long as its job may run; ours must be fresh from the runner's hands."""


@dataclass(frozen=True, slots=True)
class Audience:
    """What a token must say to be meant for this bridge."""

    issuer: str
    """Exact ``iss``: scheme, host, port and path as GitLab writes it, no trailing slash unless it does."""
    audience: str
    """Exact ``aud``; a list is refused even if this is its only member."""
    max_life_seconds: int
    """Cap for exp - iat: the longest job timeout that the site allows."""


class KeySource(Protocol):
    """Where public keys come from."""

    def key(self, issuer: str, kid: str) -> RSAPublicKey:
        """The key ``kid`` of ``issuer``; raises TokenRefused ``token.unknown_key``, or Outage if no set is fresh."""
        ...


class Verifier:
    """Checks id_tokens of the configured issuers; safe to use from many threads."""

    def __init__(self, audiences: Iterable[Audience], keys: KeySource) -> None:
        self._audiences = {audience.issuer: audience for audience in audiences}
        self._keys = keys

    def verify(self, token: UnverifiedToken, now: datetime) -> SignedClaims:
        """The claims of ``token`` at the moment ``now`` (aware), read-only.

        Raises TokenRefused ``token.<reason>``, or Outage if the issuer's keys are too old or never came.
        """
        parts = split(token)
        expected = self._issuer(parts.unverified_claims)
        key = self._keys.key(expected.issuer, parts.unverified_kid)
        claims = check_signature(token, key, expected, REQUIRED)
        if claims != parts.unverified_claims:
            raise token_refused("payload", "two parsers read two payloads")
        check_claims(claims)
        _check_times(claims, expected.max_life_seconds, now.timestamp())
        return SignedClaims(MappingProxyType(claims))

    def _issuer(self, unverified_claims: Mapping[str, Any]) -> Audience:
        unverified_issuer = unverified_claims.get("iss")
        if type(unverified_issuer) is not str or unverified_issuer not in self._audiences:
            raise token_refused("issuer", "iss is not a configured issuer")
        return self._audiences[unverified_issuer]


def check_signature(token: str, key: RSAPublicKey, expected: Audience, required: Iterable[str]) -> dict[str, Any]:
    """Step 6: the claims, signed, of that issuer and for that audience, with all that are ``required``.

    Times are step 7, for PyJWT takes the machine's clock and no other. Raises TokenRefused ``token.<reason>``.
    """
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key=key,
            algorithms=[ALGORITHM],
            audience=expected.audience,
            issuer=expected.issuer,
            options={
                "verify_signature": True,
                "require": list(required),
                "verify_aud": True,
                "strict_aud": True,
                "verify_iss": True,
                "verify_sub": True,
                "verify_jti": True,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "enforce_minimum_key_length": True,
            },
        )
    except jwt.InvalidAudienceError as error:
        raise token_refused("audience", "aud is not the one string that names this bridge") from error
    except jwt.MissingRequiredClaimError as error:
        raise token_refused("claim_missing", f"claim {error.claim} is missing", claim=error.claim) from error
    except jwt.InvalidSignatureError as error:
        raise token_refused("signature", "the signature is not the issuer's") from error
    except jwt.PyJWTError as error:
        raise token_refused("invalid", type(error).__name__) from error
    return claims


def _check_times(claims: Mapping[str, Any], max_life: int, now: float) -> None:
    """Step 7; RFC 7519 section 4.1, plus an upper bound for age and life."""
    issued, not_before, expires = claims["iat"], claims["nbf"], claims["exp"]
    if expires <= issued or expires - issued > max_life:
        raise token_refused("life", f"exp - iat is not within 1..{max_life} s", life=expires - issued)
    if now >= expires + LEEWAY_SECONDS:
        raise token_refused("expired", "exp has passed", late_seconds=int(now - expires))
    if now < max(issued, not_before) - LEEWAY_SECONDS:
        raise token_refused("not_yet", "iat or nbf lies in the future", early_seconds=int(issued - now))
    if now - issued > MAX_AGE_SECONDS:
        raise token_refused("too_old", f"iat is more than {MAX_AGE_SECONDS} s ago", age_seconds=int(now - issued))
