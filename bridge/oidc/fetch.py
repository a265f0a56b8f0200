"""Fetches the key set of an issuer over HTTPS: OpenID Connect Discovery 1.0 section 4, then the JWKS that it names.

The issuer is pinned by configuration, trusted through its own CA file, and still only allowed to cost a little: no
redirects, no proxy of the environment, 64 KiB an answer, five seconds in all.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import httpx2
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bridge.oidc.jwks import BadKeySet, parse_key_set
from bridge.oidc.strict_json import AmbiguousJson, loads_object

MAX_ANSWER_BYTES: Final = 64 * 1024
TOTAL_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 2.0
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
        origin = urlsplit(issuer)
        if origin.scheme != "https" or not origin.hostname or origin.query or origin.fragment or origin.username:
            raise ValueError(f"issuer is not a plain https URL: {issuer!r}")
        self._issuer = issuer
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    def fetch(self) -> Mapping[str, RSAPublicKey]:
        """The issuer's keys now, by kid; raises BadKeySet for an answer, OSError for no answer."""
        deadline = time.monotonic() + TOTAL_SECONDS
        with httpx2.Client(
            verify=self._context,
            trust_env=False,
            follow_redirects=False,
            http1=True,
            http2=False,
            timeout=httpx2.Timeout(_WAIT_SECONDS),
            headers={"Accept": "application/json", "User-Agent": "ci-bridge"},
        ) as client:
            discovery = _get(client, self._issuer.rstrip("/") + DISCOVERY_PATH, deadline)
            return parse_key_set(_get(client, self._jwks_uri(discovery), deadline))

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


def _get(client: httpx2.Client, url: str, deadline: float) -> bytes:
    """The body of a 200 answer. httpx2's own time-outs count each read anew, hence the deadline beside them."""
    body = bytearray()
    try:
        with client.stream("GET", url) as response:
            if response.status_code != 200:
                raise BadKeySet(f"answer {response.status_code}")
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise BadKeySet(f"answer above {MAX_ANSWER_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError("the issuer is too slow")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    return bytes(body)
