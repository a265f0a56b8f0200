"""Attack tables of the strict token front: T1, T2, T3, T6, T8, T9, T12, T14, T15."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from issuer_example import AUDIENCE, ISSUER, KID, NOW, Keys, Mint, b64url

from bridge.errors import BridgeError, TokenRefused
from bridge.model import UnverifiedToken
from bridge.oidc.claims import KNOWN, OPTIONAL, REQUIRED, UNUSED, unknown_claims
from bridge.oidc.strict_json import AmbiguousJson, loads_object
from bridge.oidc.token import MAX_TOKEN_BYTES
from bridge.oidc.verifier import Verifier

Claims = dict[str, Any]
FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def refusal(verifier: Verifier, token: str) -> str:
    """The code with which a token is refused."""
    with pytest.raises(TokenRefused) as caught:
        verifier.verify(UnverifiedToken(token), NOW)
    return caught.value.code


def test_accepts_a_genuine_token(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    verified = verifier.verify(mint(claims), NOW)
    assert verified == claims
    with pytest.raises(TypeError):
        verified["user_id"] = "102"  # type: ignore[index]


HEADERS: list[tuple[str, Claims, str]] = [
    ("none", {"alg": "none", "kid": KID}, "token.algorithm"),
    ("NONE", {"alg": "NONE", "kid": KID}, "token.algorithm"),
    ("nOnE", {"alg": "nOnE", "kid": KID}, "token.algorithm"),
    ("rs256", {"alg": "rs256", "kid": KID}, "token.algorithm"),
    ("PS256", {"alg": "PS256", "kid": KID}, "token.algorithm"),
    ("ES256", {"alg": "ES256", "kid": KID}, "token.algorithm"),
    ("HS256", {"alg": "HS256", "kid": KID}, "token.algorithm"),
    ("list", {"alg": ["RS256"], "kid": KID}, "token.algorithm"),
    ("null", {"alg": None, "kid": KID}, "token.algorithm"),
    ("missing", {"kid": KID}, "token.algorithm"),
    ("crit", {"alg": "RS256", "kid": KID, "crit": ["exp"]}, "token.header"),
    ("b64", {"alg": "RS256", "kid": KID, "b64": False, "crit": ["b64"]}, "token.header"),
    ("zip", {"alg": "RS256", "kid": KID, "zip": "DEF"}, "token.header"),
    ("enc", {"alg": "RS256", "kid": KID, "enc": "A256GCM"}, "token.header"),
    ("typ", {"alg": "RS256", "kid": KID, "typ": "at+jwt"}, "token.header"),
    ("typ list", {"alg": "RS256", "kid": KID, "typ": ["JWT"]}, "token.header"),
]


@pytest.mark.threat("T1")
@pytest.mark.parametrize(("header", "code"), [row[1:] for row in HEADERS], ids=[row[0] for row in HEADERS])
def test_refuses_other_algorithms_before_any_key_is_looked_up(
    verifier: Verifier, keys: Keys, mint: Mint, claims: Claims, header: Claims, code: str
) -> None:
    assert refusal(verifier, mint(claims, header=header)) == code
    assert keys.asked == []


@pytest.mark.threat("T1")
@pytest.mark.parametrize("form", ["pem", "der", "jwk", "ssh", "pkcs1"])
def test_refuses_hmac_keyed_with_the_public_key(
    verifier: Verifier, claims: Claims, signing_key: rsa.RSAPrivateKey, form: str
) -> None:
    public = signing_key.public_key()
    encoding, kind = serialization.Encoding, serialization.PublicFormat
    secret = {
        "pem": lambda: public.public_bytes(encoding.PEM, kind.SubjectPublicKeyInfo),
        "der": lambda: public.public_bytes(encoding.DER, kind.SubjectPublicKeyInfo),
        "jwk": lambda: jwt.algorithms.RSAAlgorithm.to_jwk(public).encode(),
        "ssh": lambda: public.public_bytes(encoding.OpenSSH, kind.OpenSSH),
        "pkcs1": lambda: public.public_bytes(encoding.PEM, kind.PKCS1),
    }[form]()
    for alg in ("HS256", "RS256"):
        head = json.dumps({"alg": alg, "kid": KID, "typ": "JWT"}).encode()
        signed = f"{b64url(head)}.{b64url(json.dumps(claims).encode())}"
        token = f"{signed}.{b64url(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
        assert refusal(verifier, token) in {"token.algorithm", "token.signature"}


@pytest.mark.threat("T1")
def test_refuses_foreign_missing_and_cut_signatures(
    verifier: Verifier, mint: Mint, claims: Claims, other_key: rsa.RSAPrivateKey
) -> None:
    token = mint(claims)
    head, payload, signature = token.split(".")
    assert refusal(verifier, mint(claims, key=other_key)) == "token.signature"
    assert refusal(verifier, f"{head}.{payload}.") == "token.form"
    assert refusal(verifier, f"{head}.{payload}.{b64url(bytes(255))}") == "token.signature"
    assert refusal(verifier, f"{head}.{payload}.{b64url(bytes(256))}") == "token.signature"
    forged = b64url(json.dumps(claims | {"user_id": "102"}).encode())
    assert refusal(verifier, f"{head}.{forged}.{signature}") == "token.signature"


FORMS: dict[str, Callable[[str], str]] = {
    "padding": lambda token: token + "==",
    "space": lambda token: token + " ",
    "newline": lambda token: token + "\n",
    "leading space": lambda token: " " + token,
    "plus alphabet": lambda token: token.replace("_", "/").replace("-", "+") + "+",
    "two segments": lambda token: token.rpartition(".")[0],
    "four segments": lambda token: token + ".AAAA",
    "five segments": lambda token: token + ".AAAA.AAAA",
    "empty": lambda token: "",
    "dots": lambda token: "..",
    "JSON serialisation": lambda token: json.dumps(
        dict(zip(("protected", "payload", "signature"), token.split("."), strict=True))
    ),
    "non-ASCII digit": lambda token: token[:-1] + "\u0661",
    "NUL": lambda token: token + "\0",
    "trailing bits": lambda token: token[:-1] + _with_trailing_bits(token[-1]),
}


def _with_trailing_bits(last: str) -> str:
    """The last character of a 256-byte signature, with bits set that decode to nothing."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(last) | 1]


@pytest.mark.threat("T3")
@pytest.mark.parametrize("form", FORMS)
def test_refuses_every_spelling_but_one(verifier: Verifier, mint: Mint, claims: Claims, form: str) -> None:
    token = mint(claims)
    other = FORMS[form](token)
    assert other != token
    assert refusal(verifier, other) == "token.form"


@pytest.mark.threat("T3")
def test_refuses_tokens_above_the_size_limit(verifier: Verifier, keys: Keys, mint: Mint, claims: Claims) -> None:
    assert refusal(verifier, mint(claims | {"groups_direct": ["x" * MAX_TOKEN_BYTES]})) == "token.size"
    assert refusal(verifier, "A" * 1_000_000) == "token.size"
    assert keys.asked == []


@pytest.mark.threat("T2")
@pytest.mark.parametrize(
    "kid",
    [
        "../../dev/null",
        "' OR 1=1 --",
        "https://evil.test/jwks",
        "k" * 129,
        "",
        "a b",
        "a\n",
        "ключ",
        7,
        None,
        ["key-1"],
    ],
)
def test_refuses_kids_that_are_no_names(
    verifier: Verifier, keys: Keys, mint: Mint, claims: Claims, kid: object
) -> None:
    assert refusal(verifier, mint(claims, header={"alg": "RS256", "typ": "JWT", "kid": kid})) == "token.kid"
    assert keys.asked == []


@pytest.mark.threat("T2")
@pytest.mark.parametrize("member", ["jku", "jwk", "x5u", "x5c", "x5t", "x5t#S256", "cty", "url", "nonce"])
def test_refuses_header_members_that_could_lead_to_a_key(
    verifier: Verifier, keys: Keys, mint: Mint, claims: Claims, member: str
) -> None:
    header = {"alg": "RS256", "typ": "JWT", "kid": KID, member: "https://evil.test/"}
    assert refusal(verifier, mint(claims, header=header)) == "token.header"
    assert keys.asked == []


@pytest.mark.threat("T2")
def test_refuses_kids_of_other_keys(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    assert refusal(verifier, mint(claims, header={"alg": "RS256", "kid": "key-2"})) == "token.unknown_key"


PAYLOADS: dict[str, Callable[[str], bytes]] = {
    "duplicate member": lambda text: (text[:-1] + ', "user_id": "102"}').encode(),
    "duplicate nested member": lambda text: (text[:-1] + ', "job_config": {"a": 1, "a": 2}}').encode(),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without mark": lambda text: text.encode("utf-16-le"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "Latin-1": lambda text: (text[:-1] + ', "x": "\xe9"}').encode("latin-1"),
    "overlong UTF-8": lambda text: text[:-1].encode() + b', "x": "\xc0\xae"}',
    "lone surrogate": lambda text: (text[:-1] + ', "x": "\\ud800"}').encode(),
    "NaN": lambda text: (text[:-1] + ', "x": NaN}').encode(),
    "Infinity": lambda text: (text[:-1] + ', "x": -Infinity}').encode(),
    "huge float": lambda text: (text[:-1] + ', "x": 1e999}').encode(),
    "huge integer": lambda text: (text[:-1] + ', "x": 9007199254740993}').encode(),
    "very long integer": lambda text: (text[:-1] + ', "x": ' + "9" * 5000 + "}").encode(),
    "deep list": lambda text: (text[:-1] + ', "x": ' + "[" * 6 + "]" * 6 + "}").encode(),
    "very deep list": lambda text: (text[:-1] + ', "x": ' + "[" * 5000 + "]" * 5000 + "}").encode(),
    "two documents": lambda text: (text + text).encode(),
    "list": lambda text: f"[{text}]".encode(),
    "string": lambda text: b'"x"',
    "null": lambda text: b"null",
    "empty": lambda text: b" ",
    "comment": lambda text: (text + "// x").encode(),
    "single quotes": lambda text: text.replace('"', "'").encode(),
    "raw newline in a string": lambda text: (text[:-1] + ', "x": "a\nb"}').encode(),
}


@pytest.mark.threat("T3")
@pytest.mark.parametrize("form", PAYLOADS)
def test_refuses_payloads_with_more_than_one_reading(
    verifier: Verifier, keys: Keys, mint: Mint, claims: Claims, form: str
) -> None:
    assert refusal(verifier, mint(PAYLOADS[form](json.dumps(claims)))) == "token.payload"
    assert keys.asked == []


@pytest.mark.threat("T3")
def test_refuses_duplicate_header_members(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    header = b'{"alg": "none", "alg": "RS256", "kid": "key-1"}'
    assert refusal(verifier, mint(claims, header=header)) == "token.header"


@pytest.mark.threat("T3")
def test_refuses_a_payload_that_the_library_reads_otherwise(
    verifier: Verifier, mint: Mint, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = mint(claims)
    genuine = jwt.decode
    monkeypatch.setattr("jwt.decode", lambda *given, **options: genuine(*given, **options) | {"user_id": "102"})
    assert refusal(verifier, token) == "token.payload"


ISSUERS = [
    ISSUER + "/",
    ISSUER + ".evil.test",
    ISSUER.upper(),
    ISSUER.replace("https", "http"),
    ISSUER + ":443",
    ISSUER.replace("gitlab", "gitl\u0430b"),
    " " + ISSUER,
    "https://evil.test",
    "",
    None,
    7,
    [ISSUER],
    {"a": ISSUER},
]


@pytest.mark.threat("T6")
@pytest.mark.parametrize("issuer", ISSUERS, ids=repr)
def test_refuses_issuers_that_are_not_configured_to_the_letter(
    verifier: Verifier, keys: Keys, mint: Mint, claims: Claims, issuer: object
) -> None:
    assert refusal(verifier, mint(claims | {"iss": issuer})) == "token.issuer"
    assert keys.asked == []


@pytest.mark.threat("T6")
def test_refuses_a_token_that_another_issuers_key_signed(
    verifier: Verifier, mint: Mint, claims: Claims, other_key: rsa.RSAPrivateKey
) -> None:
    other = "https://other.realm.test"
    assert verifier.verify(mint(claims | {"iss": other}, key=other_key), NOW)["iss"] == other
    assert refusal(verifier, mint(claims, key=other_key)) == "token.signature"
    assert refusal(verifier, mint(claims | {"iss": other})) == "token.signature"


@pytest.mark.threat("T6")
@pytest.mark.parametrize(
    "audience",
    [[AUDIENCE], [AUDIENCE, "x"], AUDIENCE + "/", AUDIENCE.upper(), "", ISSUER, {"a": AUDIENCE}, 7, None, []],
    ids=repr,
)
def test_refuses_audiences_that_are_not_ours_alone(
    verifier: Verifier, mint: Mint, claims: Claims, audience: object
) -> None:
    assert refusal(verifier, mint(claims | {"aud": audience})) in {"token.audience", "token.claim_missing"}


TIMES = [
    ("expired within leeway", {"iat": -500, "nbf": -505, "exp": -29}, None),
    ("expired at leeway", {"iat": -500, "nbf": -505, "exp": -30}, "token.expired"),
    ("issued ahead within leeway", {"iat": 30, "nbf": 25, "exp": 3600}, None),
    ("issued ahead", {"iat": 31, "nbf": 26, "exp": 3600}, "token.not_yet"),
    ("not yet valid", {"iat": 0, "nbf": 31, "exp": 3600}, "token.not_yet"),
    ("far ahead", {"iat": 120, "nbf": 115, "exp": 3600}, "token.not_yet"),
    ("ten minutes old", {"iat": -600, "nbf": -605, "exp": 3000}, None),
    ("older", {"iat": -601, "nbf": -606, "exp": 3000}, "token.too_old"),
    ("six hours of life", {"iat": 0, "nbf": -5, "exp": 6 * 3600}, None),
    ("more than six hours", {"iat": 0, "nbf": -5, "exp": 6 * 3600 + 1}, "token.life"),
    ("dies before its birth", {"iat": 0, "nbf": -5, "exp": -10}, "token.life"),
    ("no life", {"iat": 0, "nbf": -5, "exp": 0}, "token.life"),
]


@pytest.mark.threat("T8")
@pytest.mark.threat("T9")
@pytest.mark.parametrize(("offsets", "code"), [row[1:] for row in TIMES], ids=[row[0] for row in TIMES])
def test_holds_times_to_the_second(
    verifier: Verifier, mint: Mint, claims: Claims, offsets: dict[str, int], code: str | None
) -> None:
    start = int(NOW.timestamp())
    token = mint(claims | {name: start + offset for name, offset in offsets.items()})
    if code is None:
        verifier.verify(token, NOW)
    else:
        assert refusal(verifier, token) == code


@pytest.mark.threat("T8")
def test_refuses_a_six_hour_token_after_eleven_minutes(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    token = mint(claims | {"exp": claims["iat"] + 6 * 3600})
    with pytest.raises(TokenRefused) as caught:
        verifier.verify(token, NOW + timedelta(minutes=11))
    assert caught.value.code == "token.too_old"


@pytest.mark.threat("T9")
@pytest.mark.parametrize("name", ["iat", "nbf", "exp"])
@pytest.mark.parametrize("value", ["1763640000", 1763640000.5, True, None, [1], -1, 0], ids=repr)
def test_refuses_times_that_are_no_integers(
    verifier: Verifier, mint: Mint, claims: Claims, name: str, value: object
) -> None:
    assert refusal(verifier, mint(claims | {name: value})) in {"token.claim_malformed", "token.claim_missing"}


@pytest.mark.threat("T12")
def test_refuses_a_token_that_does_not_say_which_project_runs_the_job(
    verifier: Verifier, mint: Mint, claims: Claims
) -> None:
    del claims["job_project_id"]
    assert refusal(verifier, mint(claims)) == "token.claim_missing"


@pytest.mark.threat("T12")
@pytest.mark.parametrize("value", [True, "True", "TRUE", "1", "yes", "", 1], ids=repr)
def test_refuses_ref_protected_that_is_not_gitlabs_string(
    verifier: Verifier, mint: Mint, claims: Claims, value: object
) -> None:
    assert refusal(verifier, mint(claims | {"ref_protected": value})) == "token.claim_malformed"


@pytest.mark.threat("T15")
@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_refuses_a_token_without_a_required_claim(verifier: Verifier, mint: Mint, claims: Claims, name: str) -> None:
    del claims[name]
    assert refusal(verifier, mint(claims)) in {"token.claim_missing", "token.issuer", "token.audience"}


SWAPS = ["", 0, -1, 1.5, True, [], {}, ["x"], "\u0000", "a\u202eb", "x" * 2000]


@pytest.mark.threat("T15")
@pytest.mark.parametrize("name", sorted(set(REQUIRED) | set(OPTIONAL)))
def test_refuses_claims_of_another_type(verifier: Verifier, mint: Mint, claims: Claims, name: str) -> None:
    harmless = {"groups_direct": [[], ["x"]], "user_identities": [[]]}.get(name, [])
    for value in SWAPS:
        if value in harmless:
            continue
        with pytest.raises(TokenRefused):
            verifier.verify(mint(claims | {name: value}), NOW)


@pytest.mark.threat("T15")
@pytest.mark.parametrize("value", ["007", "+7", "7.0", "７", "7 ", "0", "-7", "1e3", "99999999999999999", 7])
def test_refuses_ids_that_are_no_plain_decimal_numbers(
    verifier: Verifier, mint: Mint, claims: Claims, value: object
) -> None:
    assert refusal(verifier, mint(claims | {"user_id": value})) == "token.claim_malformed"


@pytest.mark.threat("T15")
def test_reports_unknown_claims_and_lets_them_pass(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    verified = verifier.verify(mint(claims | {"new_in_gitlab_20": {"a": [1.5]}, "another": None}), NOW)
    assert unknown_claims(verified) == ("another", "new_in_gitlab_20")
    assert unknown_claims(verifier.verify(mint(claims), NOW)) == ()


def test_every_known_claim_is_in_exactly_one_table() -> None:
    assert len(KNOWN) == len(REQUIRED) + len(OPTIONAL) + len(UNUSED)


@pytest.mark.threat("T14")
def test_the_subject_has_no_effect(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    forged = verifier.verify(mint(claims | {"sub": "project_path:bio/secret:user_id:102"}), NOW)
    assert (forged["project_id"], forged["user_id"]) == ("7", "101")


def test_every_refusal_says_the_same_sentence_to_the_caller(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    said = set()
    for token in ("x", mint(claims | {"iss": "x"}), mint(claims | {"aud": "x"}), mint(claims | {"exp": 1})):
        with pytest.raises(TokenRefused) as caught:
            verifier.verify(UnverifiedToken(token), NOW)
        said.add((caught.value.title, caught.value.remedy, caught.value.status))
    assert len(said) == 1


def test_refusals_never_quote_the_token(verifier: Verifier, mint: Mint, claims: Claims) -> None:
    canary = "canary-5f1c"
    for payload in (claims | {"user_login": canary + "\n"}, claims | {"aud": canary}, claims | {"iss": canary}):
        with pytest.raises(TokenRefused) as caught:
            verifier.verify(mint(payload), NOW)
        error: BaseException | None = caught.value
        while error is not None:
            assert canary not in f"{error}{vars(error) if isinstance(error, BridgeError) else ''}"
            error = error.__cause__ if isinstance(error.__cause__, BridgeError) else None


@settings(max_examples=300, deadline=None, suppress_health_check=FIXTURES)
@given(data=st.data())
@pytest.mark.threat("T3")
def test_a_token_with_any_byte_changed_is_refused(verifier: Verifier, mint: Mint, claims: Claims, data: Any) -> None:
    token = mint(claims)
    position = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters(max_codepoint=0x17F))
    mutant = token[:position] + letter + token[position + 1 :]
    if mutant == token:
        return
    assert refusal(verifier, mutant).startswith("token.")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, suppress_health_check=FIXTURES)
@given(changes=st.dictionaries(st.sampled_from(sorted(KNOWN)) | st.text(max_size=10), JSON, max_size=4))
@pytest.mark.threat("T15")
def test_signed_tokens_with_any_claims_are_accepted_or_refused_by_our_own_error(
    verifier: Verifier, mint: Mint, claims: Claims, changes: Claims
) -> None:
    payload = claims | changes
    try:
        verified = verifier.verify(mint(payload), NOW)
    except TokenRefused:
        return
    assert dict(verified) == payload
    assert verified["iss"] == ISSUER
    assert verified["aud"] == AUDIENCE
    assert all(check(verified[name]) for name, check in REQUIRED.items())


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_an_object_or_ambiguous(data: bytes) -> None:
    try:
        value = loads_object(data)
    except AmbiguousJson:
        return
    assert json.loads(data) == value


@settings(max_examples=200, deadline=None, suppress_health_check=FIXTURES)
@given(head=st.binary(max_size=60), payload=st.binary(max_size=60), signature=st.binary(max_size=300))
def test_any_three_segments_are_refused(verifier: Verifier, head: bytes, payload: bytes, signature: bytes) -> None:
    token = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (head, payload, signature)).decode()
    assert refusal(verifier, token).startswith("token.")
