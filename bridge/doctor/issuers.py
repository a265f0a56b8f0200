"""Checks of one GitLab: reached over TLS, discovery and keys as the verifier needs them, clocks that agree.

issuer-tls          a connection with a certificate that chains to ``ca_file``
issuer-discovery    an answer at the address of OpenID Connect Discovery 1.0 section 4
issuer-clock        the Date header of that answer (RFC 9110 section 6.6.1) against this machine's clock
issuer-keys         the key set, fetched and judged by the very code that the broker uses
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bridge.doctor.finding import Finding, failed, not_checked, ok
from bridge.oidc.fetch import DISCOVERY_PATH, DiscoveryFetcher
from bridge.oidc.jwks import BadKeySet
from bridge.oidc.keyfile import KeyFile
from bridge.settings import Issuer

MAX_SKEW_SECONDS: Final = 60
"""T9: twice the leeway that the verifier gives; beyond it tokens are refused as expired or not valid yet."""

_WAIT_SECONDS: Final = 5.0

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What GitLab said at the discovery address, and when, by our clock."""

    status: int
    date: str | None
    asked_at: float
    answered_at: float


def check_issuer(issuer: Issuer, clock: Clock = time.time) -> Iterator[Finding]:
    """Check one issuer; what needs an answer is left out when there is none, for the first finding says why."""
    if issuer.jwks_file is not None:
        yield _key_file(issuer, issuer.jwks_file)
    connection = _connection(issuer)
    if isinstance(connection, Finding):
        yield connection
        return
    try:
        connection.connect()
        yield ok("issuer-tls", issuer.url, f"certificate valid until {_valid_until(connection)}")
        answer = _ask(connection, issuer, clock)
    except (OSError, http.client.HTTPException) as error:
        yield _unreachable(issuer, error)
        return
    finally:
        connection.close()
    yield _clock(issuer, answer)
    if issuer.jwks_file is None:
        yield _discovery(issuer, answer)
        yield _keys(issuer)


def _connection(issuer: Issuer) -> http.client.HTTPSConnection | Finding:
    try:
        context = ssl.create_default_context(cafile=str(issuer.ca_file))
    except OSError as error:
        why = error.strerror or type(error).__name__
        return failed(
            "issuer-tls",
            issuer.url,
            f"{issuer.ca_file} can't be used: {why}",
            "Let issuers.ca_file name a readable PEM file with the authority of GitLab's certificate.",
        )
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    parts = urlsplit(issuer.url)
    return http.client.HTTPSConnection(str(parts.hostname), parts.port or 443, timeout=_WAIT_SECONDS, context=context)


def _valid_until(connection: http.client.HTTPSConnection) -> str:
    certificate = connection.sock.getpeercert() if isinstance(connection.sock, ssl.SSLSocket) else None
    return str((certificate or {}).get("notAfter", "an unknown time"))


def _ask(connection: http.client.HTTPSConnection, issuer: Issuer, clock: Clock) -> _Answer:
    asked_at = clock()
    path = urlsplit(issuer.url).path.rstrip("/") + DISCOVERY_PATH
    connection.request("GET", path, headers={"Accept": "application/json", "User-Agent": "ci-bridge"})
    response = connection.getresponse()
    return _Answer(response.status, response.getheader("Date"), asked_at, clock())


def _unreachable(issuer: Issuer, error: Exception) -> Finding:
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason or type(error).__name__
        return failed(
            "issuer-tls",
            issuer.url,
            f"no trusted connection: {reason}",
            "Put the authority of GitLab's certificate into issuers.ca_file, and check that the certificate is for "
            "the host in issuers.url and has not expired.",
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return failed(
        "issuer-tls",
        issuer.url,
        f"not reachable: {reason}",
        "Check issuers.url, the name's address, and that a firewall lets this host connect to GitLab.",
    )


def _discovery(issuer: Issuer, answer: _Answer) -> Finding:
    if answer.status == 200:
        return ok("issuer-discovery", issuer.url, "answered")
    return failed(
        "issuer-discovery",
        issuer.url,
        f"answer {answer.status} at {DISCOVERY_PATH}",
        "Let issuers.url be GitLab's own URL, letter by letter as in a token's iss; redirects are not followed.",
    )


def _clock(issuer: Issuer, answer: _Answer) -> Finding:
    """The Date header has whole seconds, and was made somewhere between question and answer."""
    try:
        theirs = parsedate_to_datetime(answer.date or "").timestamp()
    except ValueError:
        return not_checked(
            "issuer-clock",
            issuer.url,
            "the answer has no Date header that can be read",
            "Compare GitLab's clock with this host's by hand, or let its front server send the header.",
        )
    return clock_finding("issuer-clock", issuer.url, skew(theirs, answer.asked_at, answer.answered_at))


def skew(theirs: float, asked_at: float, answered_at: float) -> float:
    """Seconds that the other clock is ahead (negative: behind), 0 where its whole second may be our time."""
    if theirs > answered_at:
        return theirs - answered_at
    return min(0.0, theirs + 1 - asked_at)


def clock_finding(check: str, subject: str, ahead_seconds: float) -> Finding:
    """Judge a clock that is ahead of ours by so much (negative: behind)."""
    word = "ahead of" if ahead_seconds > 0 else "behind"
    detail = f"{abs(ahead_seconds):.0f} s {word} this host's clock" if abs(ahead_seconds) >= 1 else "in agreement"
    if abs(ahead_seconds) <= MAX_SKEW_SECONDS:
        return ok(check, subject, detail)
    return failed(
        check,
        subject,
        detail,
        "Check time synchronisation on both machines, for example with `chronyc tracking`.",
    )


def _keys(issuer: Issuer) -> Finding:
    try:
        keys = DiscoveryFetcher(issuer.url, issuer.ca_file).fetch()
    except BadKeySet as error:
        return failed(
            "issuer-keys",
            issuer.url,
            f"key set not trusted: {error}",
            "Until this is cured the bridge goes on with its last good set, for an hour; look at GitLab's "
            "discovery document and key set, and find out who changed them.",
        )
    except OSError as error:
        return failed(
            "issuer-keys",
            issuer.url,
            f"key set not fetched: {error}",
            "Check that this host reaches the jwks_uri in GitLab's discovery document.",
        )
    return _usable(issuer, keys)


def _key_file(issuer: Issuer, path: Path) -> Finding:
    """Keys that an administrator keeps by hand (``issuers.jwks_file``)."""
    try:
        keys = KeyFile(path).fetch()
    except (BadKeySet, OSError) as error:
        return failed(
            "issuer-keys",
            issuer.url,
            f"{path} can't be taken: {getattr(error, 'strerror', None) or error}",
            "Put GitLab's key set, as it serves it at its jwks_uri, into the file of issuers.jwks_file.",
        )
    return _usable(issuer, keys)


def _usable(issuer: Issuer, keys: Mapping[str, RSAPublicKey]) -> Finding:
    return ok("issuer-keys", issuer.url, f"{len(keys)} usable: {', '.join(sorted(keys))}")
