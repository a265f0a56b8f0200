"""A table of tokens that must be refused, in the manner of Project Wycheproof: name, token, the codes it may get.

Each is what an attacker, or a GitLab that went wrong, could send. Those marked as signed carry a genuine signature over
exactly what they say, so that nothing but the strict front stands between them and an identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from tests.unit.oidc.issuer_example import AUDIENCE, ISSUER, KID, b64url

Claims = dict[str, Any]
HEADER = {"alg": "RS256", "typ": "JWT", "kid": KID}


@dataclass(frozen=True)
class Signer:
    """The issuer's own key, and the claims of a genuine token."""

    key: rsa.RSAPrivateKey
    claims: Claims

    def sign(self, text: str) -> bytes:
        """RSASSA-PKCS1-v1_5 with SHA-256 over the text."""
        return self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())

    def token(self, header: Mapping[str, Any] | bytes | str = HEADER, payload: Any = None) -> str:
        """A genuinely signed token of this header and payload (default: the genuine claims)."""
        signed = f"{b64url(_bytes(header))}.{b64url(_bytes(self.claims if payload is None else payload))}"
        return f"{signed}.{b64url(self.sign(signed))}"

    def with_claim(self, name: str, value: object) -> str:
        """A genuinely signed token with one claim changed."""
        return self.token(payload=self.claims | {name: value})


def _bytes(part: Any) -> bytes:
    if isinstance(part, bytes):
        return part
    return part.encode() if isinstance(part, str) else json.dumps(part).encode()


_ALGORITHMS = [
    "RS256 ", " RS256", "RS256\0", "RS384", "RS512", "HS384", "HS512", "PS384", "PS512", "ES256K", "ES384", "ES512",
    "EdDSA",
    "Ed25519", "RSA-OAEP", "dir", "RS1", "RS256,none", "", "\uff32\uff33256", True, 256, {}, {"alg": "RS256"}, [],
    ["none"],
]  # fmt: skip
_TYPES = ["jwt", "Jwt", "JOSE", "JWS", "application/jwt", "JWT ", "", None, True, {"JWT": 1}]
_KIDS = [
    "key-1 ", "key-1\0", "key\u20101", "../key-1", "key-1/../key-1", "%6bey-1", "key-1?", "key-1#", "key-1;key-2",
    "file:///key-1",
    "/proc/self/environ", "$(id)", "${jndi:ldap://evil.test}", "key-1\r\nX: y", "\ufeffkey-1", True, 1.0, {}, [],
]  # fmt: skip
_MEMBERS = {
    "alg in capitals": {"ALG": "none"}, "Alg": {"Alg": "none"}, "alg with a space": {"alg ": "none"},
    "iss": {"iss": ISSUER},
    "aud": {"aud": AUDIENCE}, "p2c": {"p2c": 2**31}, "p2s": {"p2s": "AAAA"}, "epk": {"epk": {"kty": "EC"}},
    "iv": {"iv": "AAAA"},
    "b64 true": {"b64": True}, "empty crit": {"crit": []}, "null jku": {"jku": None},
    "trust_chain": {"trust_chain": ["x"]},
    "svt": {"svt": ["x"]}, "ppt": {"ppt": "shaken"}, "empty name": {"": 1}, "prototype": {"__proto__": {"alg": "none"}},
}  # fmt: skip
_HEADERS = {
    "escaped twin of alg": b'{"\\u0061lg":"none","alg":"RS256","kid":"key-1"}',
    "escaped twin of kid": b'{"alg":"RS256","kid":"key-1","\\u006bid":"key-2"}',
    "twins with one value": b'{"alg":"RS256","alg":"RS256","kid":"key-1"}',
    "byte order mark": b'\xef\xbb\xbf{"alg":"RS256","kid":"key-1"}',
    "UTF-16": '{"alg":"RS256","kid":"key-1"}'.encode("utf-16-le"),
    "trailing comma": b'{"alg":"RS256","kid":"key-1",}',
    "trailing NUL": b'{"alg":"RS256","kid":"key-1"}\0',
    "trailing document": b'{"alg":"RS256","kid":"key-1"}{}',
    "comment": b'{"alg":"RS256",/**/"kid":"key-1"}',
    "unquoted names": b"{alg:RS256,kid:key-1}",
    "cut": b'{"alg":"RS256","kid":"key-1"',
    "list": b'["RS256","key-1"]',
    "null": b"null",
    "empty object": b"{}",
    "vertical tab between members": b'{"alg":"RS256",\x0b"kid":"key-1"}',
    "no-break space": b'{"alg":"RS256",\xc2\xa0"kid":"key-1"}',
    "lone surrogate": b'{"alg":"RS256","kid":"key-1","typ":"\\udc00"}',
    "invalid UTF-8": b'{"alg":"RS256","kid":"key-1\xff"}',
}
_HEADER_CODES = {"token.header", "token.algorithm", "token.kid"}


def headers(signer: Signer) -> Iterator[tuple[str, str, set[str]]]:
    """Signed tokens whose header is not the one that GitLab writes."""
    for alg in _ALGORITHMS:
        yield f"alg {alg!r}", signer.token(HEADER | {"alg": alg}), {"token.algorithm"}
    for kind in _TYPES:
        yield f"typ {kind!r}", signer.token(HEADER | {"typ": kind}), {"token.header"}
    for kid in _KIDS:
        yield f"kid {kid!r}", signer.token(HEADER | {"kid": kid}), {"token.kid"}
    yield "kid in capitals", signer.token(HEADER | {"kid": KID.upper()}), {"token.unknown_key"}
    for name, members in _MEMBERS.items():
        yield f"header member {name}", signer.token(HEADER | members), {"token.header"}
    for name, header in _HEADERS.items():
        yield f"header {name}", signer.token(header), _HEADER_CODES


def signatures(signer: Signer) -> Iterator[tuple[str, str, set[str]]]:
    """Signatures that are nearly right."""
    signed = signer.token().rpartition(".")[0]
    header, payload = signed.split(".")
    good, key = signer.sign(signed), signer.key
    modulus = key.public_key().public_numbers().n
    digest = hashlib.sha256(signed.encode()).digest()
    claims = json.dumps(signer.claims).encode()
    others: dict[str, Callable[[], bytes]] = {
        "SHA-1": lambda: key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA1()),  # noqa: S303 - it is an attack
        "SHA-512": lambda: key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA512()),
        "PSS": lambda: key.sign(signed.encode(), padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256()),
        "digest of the digest": lambda: signer.sign(digest.hex()),
        "digest as SHA-512": lambda: key.sign(digest * 2, padding.PKCS1v15(), Prehashed(hashes.SHA512())),
        "over the payload": lambda: signer.sign(payload),
        "over the header": lambda: signer.sign(header),
        "over the raw JSON": lambda: key.sign(claims, padding.PKCS1v15(), hashes.SHA256()),
        "over swapped segments": lambda: signer.sign(f"{payload}.{header}"),
        "without the dot": lambda: signer.sign(header + payload),
        "with a newline": lambda: signer.sign(signed + "\n"),
        "reversed": lambda: good[::-1],
        "inverted": lambda: bytes(255 - byte for byte in good),
        "leading zero": lambda: b"\0" + good,
        "trailing zero": lambda: good + b"\0",
        "doubled": lambda: good + good,
        "first half": lambda: good[:128],
        "one byte": lambda: b"\1",
        "value one": lambda: b"\1".rjust(256, b"\0"),
        "value n - 1": lambda: (modulus - 1).to_bytes(256, "big"),
        "value n": lambda: modulus.to_bytes(256, "big"),
        "value s + n": lambda: (int.from_bytes(good, "big") + modulus).to_bytes(257, "big"),
        "value n - s": lambda: (modulus - int.from_bytes(good, "big")).to_bytes(256, "big"),
        "the padded digest itself": lambda: (b"\0\1" + b"\xff" * 202 + b"\0" + digest).rjust(256, b"\0"),
    }
    for name, make in others.items():
        yield f"signature {name}", f"{signed}.{b64url(make())}", {"token.signature"}


def spellings(signer: Signer) -> Iterator[tuple[str, str, set[str]]]:
    """A genuine token, spelt otherwise."""
    token = signer.token()
    header, payload, signature = token.split(".")
    others = {
        "Bearer": f"Bearer {token}",
        "quoted": f'"{token}"',
        "percent-encoded dots": token.replace(".", "%2E"),
        "full-width dots": token.replace(".", "\uff0e"),
        "carriage return": token + "\r\n",
        "leading tab": "\t" + token,
        "zero-width space": token + "\u200b",
        "byte order mark": "\ufeff" + token,
        "wrapped": "\n".join(token[at : at + 76] for at in range(0, len(token), 76)),
        "leading dot": "." + token,
        "trailing dot": token + ".",
        "two tokens": f"{token}.{token}",
        "two tokens, comma": f"{token},{token}",
        "unsecured": f"{header}.{payload}.",
        "detached payload": f"{header}..{signature}",
        "one padded segment": f"{header}=.{payload}.{signature}",
        "a segment of length 1 mod 4": f"{header}.{payload}.{signature[:-1]}",
        "JWE": f"{header}.{payload}.{signature}.{payload}.{signature}",
        "hexadecimal": token.encode().hex(),
        "standard base64 of the whole": b64url(token.encode()),
        "NUL in the middle": f"{header}\0.{payload}.{signature}",
        "wide": "".join(f"{char}\u0300" for char in token[:40]) + token[40:],
    }
    for name, text in others.items():
        yield f"spelling {name}", text, {"token.form"}
    swapped = f"{payload}.{header}.{b64url(signer.sign(f'{payload}.{header}'))}"
    yield "swapped segments", swapped, {"token.header"}
    nested = signer.token(payload=json.dumps(token))
    yield "nested token", nested, {"token.payload"}
    yield "in capitals", token.upper(), _HEADER_CODES | {"token.form"}


_NO_ID = [
    "0101", "+101", "-101", "101.0", "1e2", " 101", "101 ", "101\n", "0x65", "0", "", "1" * 17, "\u0661\u0660\u0661",
    "\u00b9",
    "101\0", "1,01", "1_01", 101, 101.0, True, None, ["101"], {"id": "101"},
]  # fmt: skip
_NO_TEXT = ["", "a\nb", "a\0b", "a\u202eb", "a\u2028b", "\ufeffa", "x" * 1025, 7, True, None, ["a"], {"a": "b"}]
_WRONG: dict[str, list[object]] = {
    **dict.fromkeys(("user_id", "project_id", "job_project_id", "job_id", "pipeline_id", "namespace_id"), _NO_ID),
    **dict.fromkeys(("user_login", "project_path", "ref"), _NO_TEXT),
    "jti": [
        "",
        "short",
        "x" * 129,
        "with space",
        "new\nline",
        "sl/ash",
        "\u0661" * 9,
        12345678,
        None,
        ["12345678"],
        {},
    ],
    "runner_id": ["1", 0, -1, 1.0, 1.5, True, None, [1]],
    "sha": ["0" * 39, "0" * 40 + "\n", "0" * 42, "A" * 40, "HEAD", 0, None],
    "ref_protected": ["true ", "True\n", "on", 1, None, ["true"]],
    "pipeline_source": ["PUSH", "push ", "push\n", "1push", "", None, ["push"], "p" * 65],
    "ref_type": ["BRANCH", "branch\0", "", None, 1],
    "exp": [1e10, 1763640000.0, "1763640000", None, True, {}, [], -1, 0],
    "iat": [1763640000.5, "now", None, False, {}, -(2**40)],
    "nbf": ["0", None, True, 1.5, [0]],
    "ci_config_sha": ["HEAD", "0" * 39, 7, ""],
    "ci_config_ref_uri": ["", 7, "a\nb"],
    "environment_protected": [True, "yes", ""],
    "groups_direct": ["chem", {"a": 1}, [1], [""], [None], [["a"]]],
    "user_identities": ["ldap", {}, [1], [{}], [{"provider": "ldap"}], [{"provider": "", "extern_uid": "x"}]],
}
_ISSUERS = [
    f"{ISSUER}@evil.test", f"https://evil.test/{ISSUER}", f"{ISSUER}#", f"{ISSUER}?", f"{ISSUER}/.", f"{ISSUER}%2f",
    f"{ISSUER}\0",
    f"{ISSUER}\n", ISSUER.replace("https:", ""), ISSUER.replace("//", "/"), ISSUER + ".", ISSUER.replace(".",
    "\u3002"), True, 0, {},
]  # fmt: skip
_AUDIENCES = [
    f"{AUDIENCE} ", f"{AUDIENCE}\0", f"{AUDIENCE},x", json.dumps([AUDIENCE]), AUDIENCE[:-1], AUDIENCE + ".",
    f" {AUDIENCE}",
    [[AUDIENCE]], [AUDIENCE, AUDIENCE], True, {"0": AUDIENCE},
]  # fmt: skip


def claims(signer: Signer) -> Iterator[tuple[str, str, set[str]]]:
    """Signed tokens with a claim that is not of GitLab's form."""
    malformed = {"token.claim_malformed", "token.claim_missing", "token.invalid", "token.payload"}
    for name, values in _WRONG.items():
        for value in values:
            shown = f"{repr(value)[:24]} of length {len(str(value))}"
            yield f"claim {name} {shown}", signer.with_claim(name, value), malformed
    for value in _ISSUERS:
        yield f"iss {value!r}", signer.with_claim("iss", value), {"token.issuer"}
    for value in _AUDIENCES:
        yield f"aud {value!r}", signer.with_claim("aud", value), {"token.audience", "token.claim_missing"}
    text = json.dumps(signer.claims)
    for name in ("iss", "aud", "user_id", "exp", "ref_protected"):
        escaped = "".join(f"\\u{ord(char):04x}" for char in name)
        twin = f'{text[:-1]}, "{escaped}": {json.dumps(signer.claims[name])}}}'
        yield f"escaped twin of {name}", signer.token(payload=twin), {"token.payload"}
    for number in ("1e400", "-1e400", "0x10", "01", "+1", ".5", "1.", "1_000", "--1", "9" * 400):
        yield f"number {number[:8]}", signer.token(payload=f'{text[:-1]}, "x": {number}}}'), {"token.payload"}


def vectors(signer: Signer) -> list[tuple[str, str, set[str]]]:
    """Every vector: name, token, the codes of which one must refuse it."""
    return [*headers(signer), *signatures(signer), *spellings(signer), *claims(signer)]
