"""Makes the verifier of people's tokens from the settings."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from bridge.oidc.fetch import DiscoveryFetcher
from bridge.oidc.issuers import IssuerKeys, Issuers, KeyEvents, KeysOfIssuer
from bridge.oidc.keyfile import FileKeys
from bridge.oidc.people import PeopleVerifier, Provider
from bridge.settings import PeopleIssuer


def people_verifier(issuers: Sequence[PeopleIssuer], events: KeyEvents) -> PeopleVerifier:
    """Return the verifier for the ``[[people_issuers]]`` of the settings; without any it refuses everybody."""
    return PeopleVerifier(
        [
            Provider(
                issuer=one.url,
                audience=one.audience,
                principal_claim=one.principal_claim,
                realm=one.realm,
                required_claims=MappingProxyType(dict(one.required_claims)),
                max_auth_age_seconds=one.max_auth_age_seconds,
                owns_accounts=one.owns_accounts,
            )
            for one in issuers
        ],
        Issuers({one.url: _keys(one, events) for one in issuers}),
    )


def _keys(issuer: PeopleIssuer, events: KeyEvents) -> KeysOfIssuer:
    if issuer.jwks_file is not None:
        return FileKeys(issuer.url, issuer.jwks_file, events)
    return IssuerKeys(issuer.url, DiscoveryFetcher(issuer.url, issuer.ca_file), events)
