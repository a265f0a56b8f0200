"""Fetches the key set of an issuer over HTTPS: OpenID Connect Discovery 1.0 section 4, then the JWKS that it names.

The issuer is pinned by configuration, trusted through its own CA file, and still only allowed to cost a little: no
redirects, no proxy of the environment, 64 KiB an answer, five seconds in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bridge.oidc.https import Conversation, TooLarge, plain_https, trusting
from bridge.oidc.jwks import BadKeySet, parse_key_set
from bridge.oidc.strict_json import AmbiguousJson, loads_object

MAX_ANSWER_BYTES: Final = 64 * 1024
TOTAL_SECONDS: Final = 5.0
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
"""OpenID Connect Discovery 1.0 section 4, below the issuer."""


class KeySetFetcher(Protocol):
    """Where a key set comes from."""

    def fetch(self) -> Mapping[str, RSAPublicKey]:
        """The issuer's keys now, by kid; raises BadKeySet or OSError."""
        ...


class DiscoveryFetcher:
    """Fetches the keys of one issuer; every call makes its own connection, so that an outage leaves nothing behind."""

    def __init__(self, issuer: str, ca_file: Path) -> None:
        """``issuer`` is the exact ``iss``, an https URL; ``ca_file`` holds the only CAs (PEM) trusted for it."""
        if not plain_https(issuer):
            raise ValueError(f"issuer is not a plain https URL: {issuer!r}")
        self._issuer = issuer
        self._context = trusting(ca_file)

    def fetch(self) -> Mapping[str, RSAPublicKey]:
        """The issuer's keys now, by kid; raises BadKeySet for an answer, OSError for no answer."""
        with Conversation(self._context, seconds=TOTAL_SECONDS, most_bytes=MAX_ANSWER_BYTES) as talk:
            discovery = _get(talk, self._issuer.rstrip("/") + DISCOVERY_PATH)
            return parse_key_set(_get(talk, self._jwks_uri(discovery)))

    def _jwks_uri(self, discovery: bytes) -> str:
        try:
            document = loads_object(discovery)
        except AmbiguousJson as error:
            raise BadKeySet(f"discovery document: {error}") from error
        if document.get("issuer") != self._issuer:
            raise BadKeySet("the discovery document is of another issuer")
        uri = document.get("jwks_uri")
        if type(uri) is not str or _origin(uri) != _origin(self._issuer):
            raise BadKeySet("jwks_uri is not on the issuer's host")
        return uri


def _origin(url: str) -> tuple[str, str | None, int]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or 443
    except ValueError as error:
        raise BadKeySet("jwks_uri is not a URL") from error


def _get(talk: Conversation, url: str) -> bytes:
    """The body of a 200 answer."""
    try:
        answer = talk.get(url)
    except TooLarge as error:
        raise BadKeySet(str(error)) from error
    if answer.status != 200:
        raise BadKeySet(f"answer {answer.status}")
    return answer.body
