"""Makes whole tokens that nobody may accept, part by part, for hypothesis to vary and to shrink.

There are two kinds. *Foreign*: anything that somebody without the issuer's key can make, from a genuine token or from
nothing. *Rotten*: genuinely signed by the issuer, with at least one thing in it that a strict reader must refuse; what
makes it rotten is said here in words of its own, not taken from the code under test.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import strategies as st

from tests.unit.oidc.issuer_example import KID, b64url

Claims = dict[str, Any]
HEADER: Final = {"alg": "RS256", "typ": "JWT", "kid": KID}

_TEXTS = st.text(max_size=40)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)
_IDS = ("user_id", "project_id", "job_project_id", "namespace_id", "pipeline_id", "job_id")
_WORDS = ("pipeline_source", "ref_type", "runner_environment")
_NEEDED = (
    *("iss", "aud", "sub", "exp", "nbf", "iat", "jti", *_IDS, *_WORDS),
    *("project_path", "user_login", "ref", "ref_protected", "runner_id", "sha"),
)


class Forger:
    """Strategies around one genuine token of one issuer's key."""

    def __init__(self, key: rsa.RSAPrivateKey, stranger: rsa.RSAPrivateKey, claims: Claims) -> None:
        self._key = key
        self._stranger = stranger
        self._claims = claims
        self.genuine = self._sign(json.dumps(HEADER).encode(), json.dumps(claims).encode(), key)
        self._secrets = _public_forms(key.public_key())

    def tokens(self) -> st.SearchStrategy[str]:
        """Any token that must be refused."""
        return (self.foreign() | self.rotten()).filter(lambda token: token != self.genuine)

    def foreign(self) -> st.SearchStrategy[str]:
        """Without the issuer's key."""
        segments = st.binary(max_size=200).map(b64url)
        made_up = st.lists(segments, max_size=6).map(".".join)
        return st.one_of(
            made_up,
            st.text(max_size=300),
            self._edited(),
            st.builds(self._resigned, _headers(), self._payloads(), st.integers(0, len(self._secrets) + 2)),
            st.builds(self._mixed, _headers(), self._payloads()),
            st.builds(
                lambda char, length: char * length, st.sampled_from("A.[{\0"), st.sampled_from([16383, 16384, 16385])
            ),
        )

    def rotten(self) -> st.SearchStrategy[str]:
        """By the issuer's key, and wrong."""
        head = st.just(json.dumps(HEADER).encode())
        claims = st.just(self._claims).map(lambda claims: json.dumps(claims).encode())
        whole = st.tuples(head, self._rotten_payloads()) | st.tuples(
            _rotten_headers(), claims | self._rotten_payloads()
        )
        return whole.map(lambda parts: self._sign(parts[0], parts[1], self._key))

    def _edited(self) -> st.SearchStrategy[str]:
        """The genuine token with some characters changed, put in or taken out; the filter drops what equals it."""
        at = st.integers(0, len(self.genuine) - 1)
        chars = st.sampled_from("ABab01-_.=+/ \n\0\u0661\u212a\uff0e") | st.characters()
        edits: list[st.SearchStrategy[Callable[[str], str]]] = [
            st.builds(lambda i, c: lambda text: text[:i] + c + text[i + 1 :], at, chars),
            st.builds(lambda i, c: lambda text: text[:i] + c + text[i:], at, chars),
            st.builds(lambda i, j: lambda text: text[: min(i, j)] + text[max(i, j) + 1 :], at, at),
            st.builds(lambda i, j: lambda text: text[:i] + text[j:] + text[i:], at, at),
            st.just(lambda text: ".".join(reversed(text.split(".")))),
        ]

        def apply(changes: list[Callable[[str], str]]) -> str:
            text = self.genuine
            for change in changes:
                text = change(text)
            return text

        return st.lists(st.one_of(edits), min_size=1, max_size=4).map(apply)

    def _payloads(self) -> st.SearchStrategy[bytes]:
        changed = st.dictionaries(st.sampled_from([*_NEEDED, "x"]), _JSON, max_size=3)
        merged = changed.map(lambda changes: json.dumps(self._claims | changes).encode())
        return merged | self._rotten_payloads() | st.binary(max_size=200)

    def _rotten_payloads(self) -> st.SearchStrategy[bytes]:
        text = json.dumps(self._claims)
        base = text.encode()
        claims = self._claims
        missing = st.sampled_from(_NEEDED).map(lambda name: {k: v for k, v in claims.items() if k != name})
        wrong = _wrong_values().map(lambda pair: claims | {pair[0]: pair[1]})
        twins = st.builds(
            lambda name, value: f"{text[:-1]},{_escaped(name)}:{json.dumps(value)}}}".encode(),
            st.sampled_from(sorted(claims)),
            _JSON,
        )
        times = _wrong_times(claims["iat"]).map(lambda moved: claims | moved)
        deep = st.integers(7, 6000).map(lambda depth: f'{text[:-1]},"x":{"[" * depth}{"]" * depth}}}'.encode())
        digits = st.integers(17, 6000).map(lambda count: f'{text[:-1]},"x":9{"9" * count}}}'.encode())
        garbage = st.binary(min_size=1, max_size=8).filter(lambda data: bool(data.strip(b" \t\r\n"))).map(base.__add__)
        encoded = st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig"]).map(text.encode)
        other = _JSON.filter(lambda value: type(value) is not dict).map(lambda value: json.dumps(value).encode())
        documents = (missing | wrong | times).map(lambda document: json.dumps(document).encode())
        return st.one_of(documents, twins, deep, digits, garbage, encoded, other)

    def _sign(self, header: bytes, payload: bytes, key: rsa.RSAPrivateKey) -> str:
        signed = f"{b64url(header)}.{b64url(payload)}"
        return f"{signed}.{b64url(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _resigned(self, header: bytes, payload: bytes, how: int) -> str:
        """Signed by a stranger's key, or by HMAC with some form of the public key as the secret."""
        if how >= len(self._secrets):
            return self._sign(header, payload, self._stranger)
        signed = f"{b64url(header)}.{b64url(payload)}"
        return f"{signed}.{b64url(hmac.digest(self._secrets[how], signed.encode(), hashlib.sha256))}"

    def _mixed(self, header: bytes, payload: bytes) -> str:
        """With the genuine token's signature; equal to it only where nothing was changed."""
        return f"{b64url(header)}.{b64url(payload)}.{self.genuine.rpartition('.')[2]}"


def _headers() -> st.SearchStrategy[bytes]:
    return st.just(json.dumps(HEADER).encode()) | _rotten_headers() | st.binary(max_size=60)


def _rotten_headers() -> st.SearchStrategy[bytes]:
    """A member that may not be there, or one of ours with another value."""
    names = st.sampled_from(["jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty", "p2c", "Alg", ""]) | _TEXTS
    extra = st.builds(lambda name, value: HEADER | {name: value}, names.filter(lambda name: name not in HEADER), _JSON)
    names_of_algorithms = st.sampled_from(
        ["none", "None", "HS256", "PS256", "ES256", "EdDSA", "rs256", "RS256 ", "dir"]
    )
    algorithms = (
        (names_of_algorithms | _JSON).filter(lambda value: value != "RS256").map(lambda value: HEADER | {"alg": value})
    )
    types = _JSON.filter(lambda value: value != "JWT").map(lambda value: HEADER | {"typ": value})
    kids = (
        (st.sampled_from(["key-2", "0", "-"]) | _JSON)
        .filter(lambda value: value != KID)
        .map(lambda value: HEADER | {"kid": value})
    )
    less = st.sampled_from(["alg", "kid"]).map(lambda name: {k: v for k, v in HEADER.items() if k != name})
    documents = st.one_of(extra, algorithms, types, kids, less).map(lambda header: json.dumps(header).encode())
    twins = st.sampled_from(["alg", "kid", "typ"]).map(
        lambda name: f'{json.dumps(HEADER)[:-1]},{_escaped(name)}:"none"}}'.encode()
    )
    return documents | twins


def _escaped(name: str) -> str:
    return '"' + "".join(f"\\u{ord(char):04x}" for char in name) + '"'


def _wrong_values() -> st.SearchStrategy[tuple[str, Any]]:
    """A claim that a decision needs, with a value that GitLab never writes."""

    def wrong(names: tuple[str, ...], good: Callable[[Any], bool]) -> st.SearchStrategy[tuple[str, Any]]:
        return st.tuples(st.sampled_from(names), _JSON.filter(lambda value: not good(value)))

    return st.one_of(
        wrong(_IDS, lambda value: isinstance(value, str) and value.isascii() and value.isdigit() and value[0] != "0"),
        wrong(_WORDS, lambda value: isinstance(value, str) and value.isascii()),
        wrong(("ref_protected",), lambda value: value in ("true", "false")),
        wrong(("runner_id", "iat", "nbf", "exp"), lambda value: isinstance(value, int) and value > 0),
        wrong(("project_path", "user_login", "ref", "sub"), lambda value: isinstance(value, str) and value != ""),
        wrong(("jti", "sha"), lambda value: isinstance(value, str) and value.isascii() and len(value) > 7),
        wrong(("iss", "aud"), lambda value: isinstance(value, str) and value.startswith("https:")),
    )


def _wrong_times(now: int) -> st.SearchStrategy[dict[str, int]]:
    """Born too early or late, living too long or not at all; the bounds are those of docs/security.md."""
    return st.one_of(
        st.integers(631, 10**9).map(lambda age: {"iat": now - age, "nbf": now - age, "exp": now + 60}),
        st.integers(31, 10**9).map(lambda ahead: {"iat": now + ahead, "nbf": now, "exp": now + ahead + 60}),
        st.integers(31, 3000).map(lambda ahead: {"nbf": now + ahead}),
        st.integers(6 * 3600 + 1, 10**12).map(lambda life: {"exp": now + life}),
        st.integers(0, 10**9).map(lambda gone: {"exp": now - gone}),
        st.integers(30, 599).map(lambda gone: {"iat": now - 600, "nbf": now - 600, "exp": now - gone}),
    )


def _public_forms(key: rsa.RSAPublicKey) -> list[bytes]:
    encoding, kind = serialization.Encoding, serialization.PublicFormat
    return [
        key.public_bytes(encoding.PEM, kind.SubjectPublicKeyInfo),
        key.public_bytes(encoding.DER, kind.SubjectPublicKeyInfo),
        key.public_bytes(encoding.PEM, kind.PKCS1),
        key.public_bytes(encoding.OpenSSH, kind.OpenSSH),
        b"",
    ]
