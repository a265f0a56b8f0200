"""The outer form of a compact JWS (RFC 7515 section 3.1): three segments and a header with no surprises in it.

Everything here works on text of a stranger, before any key is looked up and before any library sees it.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from typing import Any, Final

from bridge.model import UnverifiedToken
from bridge.oidc.refusal import token_refused
from bridge.oidc.strict_json import AmbiguousJson, loads_object

MAX_TOKEN_BYTES: Final = 16 * 1024
"""GitLab's largest tokens (200 groups in groups_direct) stay below 8 KiB."""

ALGORITHM: Final = "RS256"
"""The only algorithm with which GitLab signs id_tokens."""

JWT: Final = "JWT"
"""What ``typ`` says of every token that has one, unless its reader takes others too (RFC 7519 section 5.1)."""

HEADER_MEMBERS: Final = frozenset({"alg", "kid", "typ"})
"""No jku, jwk, x5u, x5c, crit, b64, zip or enc: none of them may lead us to a key or another meaning."""

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_STANDARD: Final = bytes.maketrans(b"-_+/=", b"+/???")
"""From base64url's alphabet to base64's; what only the latter has becomes foreign to both (RFC 4648 section 5)."""

KID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class UnverifiedParts:
    """What a token says of itself; nothing of it is known to be true."""

    unverified_kid: str
    unverified_claims: dict[str, Any]


def split(token: UnverifiedToken, types: frozenset[str] = frozenset({JWT})) -> UnverifiedParts:
    """The key id and claims that a compact JWS in its only canonical spelling says it has.

    ``types`` are the values that ``typ`` may have, letter by letter; without one it counts as ``JWT``. Raises
    TokenRefused ``token.size``, ``token.form``, ``token.header``, ``token.algorithm``, ``token.kid`` or
    ``token.payload``.
    """
    if type(token) is not str or len(token) > MAX_TOKEN_BYTES:
        raise token_refused("size", f"not a string of at most {MAX_TOKEN_BYTES} characters")
    if _COMPACT.fullmatch(token) is None:
        raise token_refused("form", "not three base64url segments")
    header, payload, signature = token.split(".")
    decode_base64url(signature)
    kid = _check_header(_object("header", header), types)
    return UnverifiedParts(kid, _object("payload", payload))


def decode_base64url(segment: str) -> bytes:
    """The bytes of an unpadded base64url text (RFC 7515 section 2), if it is the one canonical text for them.

    Two texts for the same bytes would let one token pass as two. Raises TokenRefused ``token.form``.
    """
    standard = segment.encode("ascii", errors="replace").translate(_STANDARD) + b"=" * (-len(segment) % 4)
    try:
        data = binascii.a2b_base64(standard)
    except ValueError as error:
        raise token_refused("form", "not base64url") from error
    # Foreign characters and stray bits are passed over above; here they differ.
    if binascii.b2a_base64(data, newline=False) != standard:
        raise token_refused("form", "not canonical base64url")
    return data


def _object(reason: str, segment: str) -> dict[str, Any]:
    try:
        return loads_object(decode_base64url(segment))
    except AmbiguousJson as error:
        raise token_refused(reason, str(error)) from error


def _check_header(header: dict[str, Any], types: frozenset[str]) -> str:
    if not header.keys() <= HEADER_MEMBERS:
        raise token_refused("header", "members beyond alg, kid and typ")
    if header.get("alg") != ALGORITHM:
        raise token_refused("algorithm", f"alg is not {ALGORITHM}")
    kind = header.get("typ", JWT)
    if type(kind) is not str or kind not in types:
        raise token_refused("header", f"typ is not {' or '.join(sorted(types))}")
    kid = header.get("kid")
    if type(kid) is not str or KID.fullmatch(kid) is None:
        raise token_refused("kid", "kid is missing or malformed")
    return kid
