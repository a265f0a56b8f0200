"""Key sets of issuers: what is refused on the wire (T4), and how long keys live (T5)."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from https_server import HttpsServer, https_server
from issuer_example import KID, b64url

from bridge.errors import Outage, TokenRefused
from bridge.oidc.fetch import MAX_ANSWER_BYTES, DiscoveryFetcher
from bridge.oidc.issuers import HARD_SECONDS, SOFT_SECONDS, UNKNOWN_KID_SECONDS, IssuerKeys
from bridge.oidc.jwks import BadKeySet, parse_key_set, thumbprint

Jwk = dict[str, Any]


def jwk_of(key: rsa.RSAPublicKey, kid: str = KID, **members: object) -> Jwk:
    """As GitLab publishes it."""
    numbers = key.public_numbers()
    length = (numbers.n.bit_length() + 7) // 8
    return {
        "kty": "RSA",
        "kid": kid,
        "use": "sig",
        "alg": "RS256",
        "n": b64url(numbers.n.to_bytes(length, "big")),
        "e": b64url(numbers.e.to_bytes(3, "big")),
        **members,
    }


def weak_key(bits: int) -> rsa.RSAPublicKey:
    """A key that is too short."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits).public_key()


@pytest.fixture(scope="module")
def good(signing_key: rsa.RSAPrivateKey) -> Jwk:
    """A key that is taken."""
    return jwk_of(signing_key.public_key())


def test_takes_the_keys_that_gitlab_publishes(good: Jwk, signing_key: rsa.RSAPrivateKey) -> None:
    keys = parse_key_set(json.dumps({"keys": [good]}).encode())
    assert {kid: key.public_numbers() for kid, key in keys.items()} == {KID: signing_key.public_key().public_numbers()}


@pytest.mark.parametrize(
    "entry", [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "OKP", "crv": "Ed25519", "x": "AA"}]
)
def test_passes_over_public_keys_of_other_kinds(good: Jwk, entry: Jwk) -> None:
    assert set(parse_key_set(json.dumps({"keys": [entry, good]}).encode())) == {KID}
    assert set(parse_key_set(json.dumps({"keys": [good | {"kid": "e", "use": "enc"}, good]}).encode())) == {KID}


def without(jwk: Jwk, name: str) -> Jwk:
    """The key less one member."""
    return {key: value for key, value in jwk.items() if key != name}


BAD_SETS: dict[str, Callable[[Jwk], object]] = {
    "symmetric key": lambda good: {"keys": [{"kty": "oct", "kid": "k", "k": "AAAA"}, good]},
    "private key": lambda good: {"keys": [good | {"d": "AAAA"}]},
    "unknown kty": lambda good: {"keys": [good | {"kty": "rsa"}]},
    "e = 1": lambda good: {"keys": [good | {"e": "AQ"}]},
    "e = 3": lambda good: {"keys": [good | {"e": "Aw"}]},
    "huge e": lambda good: {"keys": [good | {"e": "AQABAQABAQAB"}]},
    "1024 bits": lambda good: {"keys": [good, jwk_of(weak_key(1024), "weak")]},
    "512 bits": lambda good: {"keys": [good | {"n": b64url((1 << 511 | 1).to_bytes(64, "big"))}]},
    "16384 bits": lambda good: {"keys": [good | {"n": b64url((1 << 16383 | 1).to_bytes(2048, "big"))}]},
    "even modulus": lambda good: {"keys": [good | {"n": b64url((1 << 2047).to_bytes(256, "big"))}]},
    "duplicate kid": lambda good: {"keys": [good, good]},
    "wrong use": lambda good: {"keys": [good | {"use": "tls"}]},
    "wrong alg": lambda good: {"keys": [good | {"alg": "PS256"}]},
    "wrong key_ops": lambda good: {"keys": [good | {"key_ops": ["sign"]}]},
    "key_ops is a string": lambda good: {"keys": [good | {"key_ops": "verify"}]},
    "no kid": lambda good: {"keys": [without(good, "kid")]},
    "kid with a slash": lambda good: {"keys": [good | {"kid": "../k"}]},
    "no modulus": lambda good: {"keys": [without(good, "n")]},
    "padded modulus": lambda good: {"keys": [good | {"n": good["n"] + "=="}]},
    "numeric modulus": lambda good: {"keys": [good | {"n": 7}]},
    "empty": lambda good: {"keys": []},
    "only other kinds": lambda good: {"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]},
    "seventeen keys": lambda good: {"keys": [good | {"kid": f"k{number}"} for number in range(17)]},
    "no keys": lambda good: {},
    "object for a list": lambda good: {"keys": {"a": good}},
    "string for a key": lambda good: {"keys": ["x"]},
    "list": lambda good: [good],
}


@pytest.mark.threat("T4")
@pytest.mark.parametrize("kind", BAD_SETS)
def test_refuses_whole_key_sets_that_show_something_is_wrong(good: Jwk, kind: str) -> None:
    with pytest.raises(BadKeySet):
        parse_key_set(json.dumps(BAD_SETS[kind](good)).encode())


@pytest.mark.threat("T4")
def test_refuses_a_key_set_with_duplicate_members(good: Jwk) -> None:
    text = json.dumps({"keys": [good]})
    with pytest.raises(BadKeySet):
        parse_key_set((text[:-1] + ', "keys": []}').encode())


@pytest.fixture
def site(tmp_path: Path, good: Jwk) -> Iterator[HttpsServer]:
    """An issuer on the wire that serves one good key."""
    with https_server(tmp_path) as server:
        discovery = {"issuer": server.url, "jwks_uri": f"{server.url}/oauth/discovery/keys"}
        server.body("/.well-known/openid-configuration", json.dumps(discovery).encode())
        server.body("/oauth/discovery/keys", json.dumps({"keys": [good]}).encode())
        yield server


def test_fetches_keys_by_discovery(site: HttpsServer) -> None:
    assert set(DiscoveryFetcher(site.url, site.ca_file).fetch()) == {KID}
    assert [path for path, _ in site.requests] == ["/.well-known/openid-configuration", "/oauth/discovery/keys"]


def redirect(handler: BaseHTTPRequestHandler) -> None:
    """To a place that would answer."""
    handler.send_response(302)
    handler.send_header("Location", "/oauth/discovery/keys")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A body that ends when nobody listens any more."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


SLOW_SECONDS = 100.0
"""How long the slow answers take; nobody waits for half of it."""


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """A body a byte at a time, each well within the read time-out."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    pause = threading.Event()
    for _ in range(1000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        pause.wait(SLOW_SECONDS / 1000)


def silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer at all for longer than anybody waits."""
    threading.Event().wait(SLOW_SECONDS)


KEYS, DISCOVERY = "/oauth/discovery/keys", "/.well-known/openid-configuration"


@pytest.mark.threat("T4")
@pytest.mark.parametrize("path", [DISCOVERY, KEYS])
def test_follows_no_redirect(site: HttpsServer, path: str) -> None:
    site.answers["/elsewhere"] = site.answers[KEYS]
    site.answers[path] = redirect
    before = len(site.requests)
    with pytest.raises(BadKeySet, match="302"):
        DiscoveryFetcher(site.url, site.ca_file).fetch()
    assert len(site.requests) - before == (1 if path == DISCOVERY else 2)


@pytest.mark.threat("T4")
@pytest.mark.parametrize("answer", [endless, dripping, silent])
def test_gives_up_on_answers_that_do_not_end(site: HttpsServer, answer: Callable[..., None]) -> None:
    site.answers[KEYS] = answer
    began = time.monotonic()
    with pytest.raises((BadKeySet, OSError)):
        DiscoveryFetcher(site.url, site.ca_file).fetch()
    assert time.monotonic() - began < SLOW_SECONDS / 2, "it waited for the end of the answer"


@pytest.mark.threat("T4")
def test_refuses_large_and_failed_answers(site: HttpsServer, good: Jwk) -> None:
    fetcher = DiscoveryFetcher(site.url, site.ca_file)
    padded = json.dumps({"keys": [good]}).encode().ljust(MAX_ANSWER_BYTES)
    site.body(KEYS, padded)
    assert set(fetcher.fetch()) == {KID}
    for body, status in ((padded + b" ", 200), (padded, 500), (padded, 206), (b"not json", 200)):
        site.body(KEYS, body, status)
        with pytest.raises(BadKeySet):
            fetcher.fetch()


@pytest.mark.threat("T4")
@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.test"},
        {"jwks_uri": "https://evil.test/keys"},
        {"jwks_uri": "http://localhost/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
        {"jwks_uri": "https://[::1/keys"},
    ],
    ids=str,
)
def test_refuses_discovery_that_leads_elsewhere(site: HttpsServer, change: dict[str, object]) -> None:
    document = {"issuer": site.url, "jwks_uri": f"{site.url}{KEYS}"} | change
    site.body(DISCOVERY, json.dumps(document).encode())
    with pytest.raises(BadKeySet):
        DiscoveryFetcher(site.url, site.ca_file).fetch()
    assert [path for path, _ in site.requests] == [DISCOVERY]


@pytest.mark.threat("T4")
def test_trusts_only_its_own_ca(site: HttpsServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with https_server(other) as stranger, pytest.raises(OSError, match=r"(?i)certificate"):
        DiscoveryFetcher(site.url, stranger.ca_file).fetch()
    assert site.requests == []


@pytest.mark.threat("T4")
def test_takes_no_proxy_from_the_environment(site: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert set(DiscoveryFetcher(site.url, site.ca_file).fetch()) == {KID}


@pytest.mark.parametrize("issuer", ["http://a.test", "https://", "https://u@a.test", "https://a.test?x", "file:///x"])
def test_refuses_issuers_that_are_no_plain_https_urls(issuer: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="https"):
        DiscoveryFetcher(issuer, tmp_path / "ca.pem")


class Issuer:
    """A fetcher, its clock, and the events, all in the hands of a test."""

    def __init__(self, keys: Mapping[str, rsa.RSAPublicKey]) -> None:
        self.now = 1000.0
        self.keys = keys
        self.down = False
        self.fetches = 0
        self.changes: list[dict[str, str]] = []
        self.failures: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self) -> Mapping[str, rsa.RSAPublicKey]:
        self.fetches += 1
        self.gate.wait(30)
        if self.down:
            raise OSError("down")
        return dict(self.keys)

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        self.changes.append(dict(thumbprints))

    def failed(self, issuer: str, reason: str) -> None:
        self.failures.append(reason)

    def clock(self) -> float:
        return self.now


@pytest.fixture
def issuer(signing_key: rsa.RSAPrivateKey) -> Issuer:
    """One with one key."""
    return Issuer({KID: signing_key.public_key()})


@pytest.fixture
def issuer_keys(issuer: Issuer) -> IssuerKeys:
    """The keys of that issuer."""
    return IssuerKeys("https://i.test", issuer, issuer, issuer.clock)


@pytest.mark.threat("T5")
def test_fetches_once_and_again_after_the_soft_age(issuer: Issuer, issuer_keys: IssuerKeys) -> None:
    for _ in range(5):
        issuer_keys.key(KID)
    assert issuer.fetches == 1
    issuer.now += SOFT_SECONDS
    issuer_keys.key(KID)
    assert issuer.fetches == 2
    assert issuer.changes == [{KID: thumbprint(issuer.keys[KID])}]


@pytest.mark.threat("T5")
def test_withdrawn_keys_die_with_the_next_good_fetch(
    issuer: Issuer, issuer_keys: IssuerKeys, other_key: rsa.RSAPrivateKey
) -> None:
    issuer_keys.key(KID)
    issuer.keys = {"key-2": other_key.public_key()}
    issuer.now += SOFT_SECONDS
    with pytest.raises(TokenRefused):
        issuer_keys.key(KID)
    issuer_keys.key("key-2")
    assert [sorted(change) for change in issuer.changes] == [[KID], ["key-2"]]


@pytest.mark.threat("T5")
def test_a_new_key_is_found_at_once_and_unknown_kids_cost_two_fetches_a_minute(
    issuer: Issuer, issuer_keys: IssuerKeys, other_key: rsa.RSAPrivateKey
) -> None:
    issuer_keys.key(KID)
    issuer.now += UNKNOWN_KID_SECONDS
    issuer.keys = {**issuer.keys, "key-2": other_key.public_key()}
    issuer_keys.key("key-2")
    assert issuer.fetches == 2
    for number in range(10_000):
        issuer.now += 60 / 10_000
        with pytest.raises(TokenRefused) as caught:
            issuer_keys.key(f"random-{number}")
        assert caught.value.code == "token.unknown_key"
    assert issuer.fetches <= 4


@pytest.mark.threat("T5")
def test_an_issuer_that_is_down_is_bridged_for_59_minutes_and_not_for_61(
    issuer: Issuer, issuer_keys: IssuerKeys
) -> None:
    issuer_keys.key(KID)
    issuer.down = True
    issuer.now += HARD_SECONDS - 60
    issuer_keys.key(KID)
    issuer.now += 120
    for _ in range(20):
        with pytest.raises(Outage) as caught:
            issuer_keys.key(KID)
        assert caught.value.code == "issuer.keys_too_old"
    issuer.down = False
    issuer.now += 30
    issuer_keys.key(KID)


@pytest.mark.threat("T5")
def test_failed_fetches_are_not_repeated_at_once(issuer: Issuer, issuer_keys: IssuerKeys) -> None:
    issuer.down = True
    for _ in range(600):
        with pytest.raises(Outage):
            issuer_keys.key(KID)
        issuer.now += 1
    assert issuer.fetches <= 24
    assert len(issuer.failures) == issuer.fetches


@pytest.mark.threat("T4")
def test_a_bad_set_raises_an_alarm_and_keeps_the_last_good_one(issuer: Issuer, issuer_keys: IssuerKeys) -> None:
    issuer_keys.key(KID)

    def bad() -> Mapping[str, rsa.RSAPublicKey]:
        raise BadKeySet("a private or symmetric key was published")

    issuer.fetch = bad  # type: ignore[method-assign]
    issuer.now += SOFT_SECONDS
    issuer_keys.key(KID)
    assert issuer.failures == ["a private or symmetric key was published"]


def test_a_fault_of_a_parser_counts_as_a_failed_fetch(issuer: Issuer, issuer_keys: IssuerKeys) -> None:
    def broken() -> Mapping[str, rsa.RSAPublicKey]:
        raise RuntimeError("secret detail")

    issuer.fetch = broken  # type: ignore[method-assign]
    with pytest.raises(Outage):
        issuer_keys.key(KID)
    assert issuer.failures == ["unexpected RuntimeError"]


@pytest.mark.threat("T5")
def test_many_threads_share_one_fetch(issuer: Issuer, issuer_keys: IssuerKeys) -> None:
    issuer.gate.clear()
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(issuer_keys.key(KID))) for _ in range(16)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while issuer.fetches == 0 and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    issuer.gate.set()
    for thread in threads:
        thread.join(30)
    assert issuer.fetches == 1
    assert len(found) == 16


@pytest.mark.threat("T5")
def test_rotation_under_load_refuses_no_genuine_token(
    issuer: Issuer, issuer_keys: IssuerKeys, other_key: rsa.RSAPrivateKey
) -> None:
    issuer_keys.key(KID)
    issuer.now += UNKNOWN_KID_SECONDS
    issuer.keys = {**issuer.keys, "key-2": other_key.public_key()}
    refused: list[BaseException] = []

    def present() -> None:
        for _ in range(50):
            try:
                issuer_keys.key("key-2")
                issuer_keys.key(KID)
            except TokenRefused as error:
                refused.append(error)

    threads = [threading.Thread(target=present) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert refused == []
    assert issuer.fetches == 2
