"""Tokens of people by an identity provider: what is none, what is a job's, and what names no person (T1, T6, T40)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.errors import Outage, TokenRefused
from bridge.model import UnverifiedToken
from bridge.oidc.fetch import DISCOVERY_PATH, DiscoveryFetcher
from bridge.oidc.issuers import IssuerKeys, Issuers
from bridge.oidc.people import FOREIGN, MAX_LIFE_SECONDS, PeopleVerifier, Provider, SignedIn
from bridge.oidc.verifier import LEEWAY_SECONDS, Verifier
from tests.unit.oidc.https_server import HttpsServer, https_server
from tests.unit.oidc.issuer_example import AUDIENCE, ISSUER, KID, NOW, Keys, Mint, b64url
from tests.unit.oidc.jwk import jwk_of

LOGIN = "https://login.realm.test"
CLIENT = "ci-bridge"
REALM = "REALM.TEST"
ISSUED = int(NOW.timestamp())
PROVIDER = Provider(LOGIN, CLIENT, "preferred_username", REALM, {}, 3600, owns_accounts=False)
Claims = dict[str, Any]


@pytest.fixture
def person() -> Claims:
    """What the provider says of alice, who has just signed in."""
    return {
        "iss": LOGIN,
        "aud": CLIENT,
        "sub": "f:1:alice",
        "iat": ISSUED,
        "exp": ISSUED + 300,
        "auth_time": ISSUED - 60,
        "preferred_username": "alice",
        "typ": "Bearer",
        "azp": CLIENT,
        "groups": ["hpc", "staff"],
        "mfa": True,
    }


@pytest.fixture
def people_keys(signing_key: rsa.RSAPrivateKey, other_key: rsa.RSAPrivateKey) -> Keys:
    """The provider's key, which is that of the GitLab too, so that nothing is refused by the key alone."""
    public = signing_key.public_key()
    return Keys({(LOGIN, KID): public, (ISSUER, KID): public, ("https://other.test", KID): other_key.public_key()})


def verifier_of(keys: Keys, *providers: Provider) -> PeopleVerifier:
    return PeopleVerifier(providers or (PROVIDER,), keys)


def refusal(people: PeopleVerifier, token: str, later: timedelta = timedelta(0)) -> str:
    with pytest.raises(TokenRefused) as caught:
        people.verify(UnverifiedToken(token), NOW + later)
    assert token not in repr(caught.value) + repr(caught.value.context)
    return caught.value.code


@pytest.mark.parametrize("header", [{}, {"typ": "JWT"}, {"typ": "at+jwt"}], ids=str)
@pytest.mark.parametrize("name", ["alice", f"alice@{REALM}"])
def test_a_person_is_who_the_provider_says(
    people_keys: Keys, mint: Mint, person: Claims, header: Claims, name: str
) -> None:
    token = mint(person | {"preferred_username": name}, header={"alg": "RS256", "kid": KID} | header)
    assert verifier_of(people_keys).verify(token, NOW) == SignedIn(f"alice@{REALM}", LOGIN)


HEADERS: list[tuple[Claims, str]] = [
    ({"alg": "none", "kid": KID}, "token.algorithm"),
    ({"alg": "HS256", "kid": KID}, "token.algorithm"),
    ({"alg": "RS512", "kid": KID}, "token.algorithm"),
    ({"alg": "ES256", "kid": KID}, "token.algorithm"),
    ({"alg": "RS256", "kid": KID, "typ": "logout+jwt"}, "token.header"),
    ({"alg": "RS256", "kid": KID, "typ": "AT+JWT"}, "token.header"),
    ({"alg": "RS256", "kid": KID, "typ": "dpop+jwt"}, "token.header"),
    ({"alg": "RS256", "kid": KID, "typ": ["JWT"]}, "token.header"),
    ({"alg": "RS256", "kid": KID, "jku": LOGIN}, "token.header"),
    ({"alg": "RS256", "kid": KID, "crit": []}, "token.header"),
    ({"alg": "RS256", "kid": "another"}, "token.unknown_key"),
    ({"alg": "RS256"}, "token.kid"),
]


@pytest.mark.threat("T1")
@pytest.mark.parametrize(("header", "code"), HEADERS, ids=str)
def test_no_other_algorithm_or_kind_of_token_is_a_persons(
    people_keys: Keys, mint: Mint, person: Claims, header: Claims, code: str
) -> None:
    assert refusal(verifier_of(people_keys), mint(person, header=header)) == code


@pytest.mark.threat("T1")
def test_the_public_key_is_no_shared_secret(
    people_keys: Keys, signing_key: rsa.RSAPrivateKey, other_key: rsa.RSAPrivateKey, mint: Mint, person: Claims
) -> None:
    pem = signing_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for alg in ("HS256", "RS256"):
        signed = ".".join(b64url(json.dumps(one).encode()) for one in ({"alg": alg, "kid": KID}, person))
        forged = f"{signed}.{b64url(hmac.new(pem, signed.encode(), hashlib.sha256).digest())}"
        assert refusal(verifier_of(people_keys), forged) in ("token.algorithm", "token.signature")
    assert refusal(verifier_of(people_keys), mint(person, key=other_key)) == "token.signature"
    body = mint(person).rpartition(".")[0]
    assert refusal(verifier_of(people_keys), f"{body}.") == "token.form"


CLAIMS: list[tuple[str, Claims, str]] = [
    ("aud of another client", {"aud": "wiki"}, "token.audience"),
    ("aud of the bridge's jobs", {"aud": AUDIENCE}, "token.audience"),
    ("aud in a list", {"aud": [CLIENT]}, "token.audience"),
    ("aud among others", {"aud": [CLIENT, "account"]}, "token.audience"),
    ("aud in capitals", {"aud": CLIENT.upper()}, "token.audience"),
    ("no aud", {"aud": None}, "token.claim_missing"),
    ("iss with a slash", {"iss": f"{LOGIN}/"}, "token.issuer"),
    ("iss of the GitLab", {"iss": ISSUER}, "token.issuer"),
    ("iss in a list", {"iss": [LOGIN]}, "token.issuer"),
    ("no sub", {"sub": ""}, "token.claim_malformed"),
    ("sub is a number", {"sub": 5}, "token.invalid"),
    ("lives over an hour", {"exp": ISSUED + MAX_LIFE_SECONDS + 1}, "token.life"),
    ("ends before it begins", {"exp": ISSUED}, "token.life"),
    ("exp is a text", {"exp": str(ISSUED + 300)}, "token.claim_malformed"),
    ("exp is true", {"exp": True}, "token.claim_malformed"),
    ("exp is a fraction", {"exp": ISSUED + 300.5}, "token.claim_malformed"),
    ("expired", {"iat": ISSUED - 331, "exp": ISSUED - LEEWAY_SECONDS}, "token.expired"),
    ("of the future", {"iat": ISSUED + 31}, "token.not_yet"),
    ("not yet", {"nbf": ISSUED + 31}, "token.not_yet"),
    ("nbf is a text", {"nbf": "0"}, "token.claim_malformed"),
    ("signed in long ago", {"auth_time": ISSUED - 3601}, "token.too_old"),
    ("signed in tomorrow", {"auth_time": ISSUED + 86400}, "token.too_old"),
    ("signed in who knows when", {"auth_time": None}, "token.claim_malformed"),
    ("auth_time is true", {"auth_time": True}, "token.claim_malformed"),
]


@pytest.mark.threat("T6")
@pytest.mark.parametrize(("what", "changes", "code"), CLAIMS, ids=[row[0] for row in CLAIMS])
def test_a_token_for_others_or_of_another_time_is_no_persons(
    people_keys: Keys, mint: Mint, person: Claims, what: str, changes: Claims, code: str
) -> None:
    assert refusal(verifier_of(people_keys), mint(person | changes)) == code


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "exp", "iat", "auth_time", "preferred_username"])
def test_without_a_claim_that_matters_it_is_nobodys(people_keys: Keys, mint: Mint, person: Claims, claim: str) -> None:
    del person[claim]
    assert refusal(verifier_of(people_keys), mint(person)).startswith("token.")


def test_a_provider_that_says_no_auth_time_can_be_asked_for_none(people_keys: Keys, mint: Mint, person: Claims) -> None:
    del person["auth_time"]
    people = verifier_of(people_keys, replace(PROVIDER, max_auth_age_seconds=0))
    assert people.verify(mint(person), NOW).principal == f"alice@{REALM}"


NAMES: list[Any] = [
    "root",
    f"root@{REALM}",
    "host/node1",
    f"host/node1.realm.test@{REALM}",
    "alice/admin",
    f"alice/admin@{REALM}",
    f"krbtgt/{REALM}@{REALM}",
    "Alice",
    "ALICE",
    "alice@realm.test",
    "alice@Realm.Test",
    "alice@OTHER.TEST",
    f"alice@{REALM}.",
    f"alice@{REALM}@{REALM}",
    "alice@",
    f"@{REALM}",
    "",
    " alice",
    "alice\n",
    "alice\x00",
    "al\u0456ce",
    "alice\\admin",
    "-alice",
    "a" * 33,
    None,
    7,
    True,
    ["alice"],
    {"name": "alice"},
]


@pytest.mark.threat("T40")
@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_name_that_is_no_plain_persons_of_the_realm_is_nobody(
    people_keys: Keys, mint: Mint, person: Claims, name: Any
) -> None:
    assert refusal(verifier_of(people_keys), mint(person | {"preferred_username": name})) == "token.principal"


@pytest.mark.threat("T40")
@pytest.mark.parametrize("other", ["sub", "email", "name", "upn"])
def test_a_name_in_another_claim_is_not_looked_at(people_keys: Keys, mint: Mint, person: Claims, other: str) -> None:
    person[other] = person.pop("preferred_username")
    assert refusal(verifier_of(people_keys), mint(person)) == "token.principal"


REQUIRED: list[tuple[str, Any, bool]] = [
    ("azp", CLIENT, True),
    ("azp", "wiki", False),
    ("groups", "hpc", True),
    ("groups", "hp", False),
    ("groups", "root", False),
    ("mfa", True, True),
    ("mfa", 1, False),
    ("mfa", "true", False),
    ("absent", "x", False),
    ("auth_time", ISSUED - 60, True),
]


@pytest.mark.parametrize(("claim", "value", "good"), REQUIRED)
def test_a_claim_that_the_settings_ask_for_must_be_there(
    people_keys: Keys, mint: Mint, person: Claims, claim: str, value: Any, good: bool
) -> None:
    people = verifier_of(people_keys, replace(PROVIDER, required_claims={"azp": CLIENT, claim: value}))
    if good:
        assert people.verify(mint(person), NOW).issuer == LOGIN
    else:
        assert refusal(people, mint(person)) == "token.claim_required"


@pytest.mark.threat("T6")
def test_the_token_of_a_job_is_no_persons(people_keys: Keys, mint: Mint, claims: Claims, person: Claims) -> None:
    """Whoever writes .gitlab-ci.yml chooses the audience, and a project's and a person's names."""
    people = verifier_of(people_keys)
    assert refusal(people, mint(claims)) == "token.issuer"
    # Even were the GitLab a provider of people too, and the claim one that a job has.
    both = verifier_of(people_keys, replace(PROVIDER, issuer=ISSUER, principal_claim="user_login"))
    chosen = claims | {"aud": CLIENT, "auth_time": ISSUED, "exp": ISSUED + 300}
    assert refusal(both, mint(chosen)) == "token.not_a_person"


@pytest.mark.threat("T6")
@pytest.mark.parametrize("claim", sorted(FOREIGN))
def test_one_claim_of_a_job_or_an_event_is_enough_to_be_no_persons(
    people_keys: Keys, mint: Mint, person: Claims, claim: str
) -> None:
    assert refusal(verifier_of(people_keys), mint(person | {claim: "7"})) == "token.not_a_person"


@pytest.mark.threat("T6")
def test_the_token_of_a_person_is_no_jobs(verifier: Verifier, mint: Mint, person: Claims) -> None:
    for changes in ({}, {"iss": ISSUER}, {"iss": ISSUER, "aud": AUDIENCE, "nbf": ISSUED, "jti": "0123456789"}):
        with pytest.raises(TokenRefused):
            verifier.verify(mint(person | changes), NOW)
    with pytest.raises(TokenRefused) as caught:
        verifier.verify(mint(person, header={"alg": "RS256", "kid": KID, "typ": "at+jwt"}), NOW)
    assert caught.value.code == "token.header"


@pytest.mark.threat("T6")
def test_each_provider_has_its_own_keys_and_words(
    people_keys: Keys, other_key: rsa.RSAPrivateKey, mint: Mint, person: Claims
) -> None:
    other = replace(PROVIDER, issuer="https://other.test", audience="other", realm="OTHER.TEST")
    people = verifier_of(people_keys, PROVIDER, other)
    theirs = person | {"iss": other.issuer, "aud": "other"}
    assert people.verify(mint(theirs, key=other_key), NOW).principal == "alice@OTHER.TEST"
    assert refusal(people, mint(theirs)) == "token.signature"
    assert refusal(people, mint(theirs | {"aud": CLIENT}, key=other_key)) == "token.audience"
    assert refusal(people, mint(theirs | {"preferred_username": f"alice@{REALM}"}, key=other_key)) == "token.principal"


class Silent:
    """``issuers.KeyEvents`` that nobody listens to."""

    def changed(self, issuer: str, thumbprints: Any) -> None:
        """Nothing."""

    def failed(self, issuer: str, reason: str) -> None:
        """Nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpsServer]:
    with https_server(tmp_path) as running:
        yield running


def test_a_real_provider_over_https(
    server: HttpsServer, signing_key: rsa.RSAPrivateKey, mint: Mint, person: Claims
) -> None:
    document = {"issuer": server.url, "jwks_uri": f"{server.url}/certs"}
    server.body(DISCOVERY_PATH, json.dumps(document).encode())
    server.body("/certs", json.dumps({"keys": [jwk_of(signing_key.public_key(), KID)]}).encode())
    keys = IssuerKeys(server.url, DiscoveryFetcher(server.url, server.ca_file), Silent())
    people = PeopleVerifier([replace(PROVIDER, issuer=server.url)], Issuers({server.url: keys}))
    assert people.verify(mint(person | {"iss": server.url}), NOW).principal == f"alice@{REALM}"
    assert refusal(people, mint(person)) == "token.issuer"


def test_a_provider_that_is_away_is_an_outage_and_nobody(server: HttpsServer, mint: Mint, person: Claims) -> None:
    keys = IssuerKeys(server.url, DiscoveryFetcher(server.url, server.ca_file), Silent())
    people = PeopleVerifier([replace(PROVIDER, issuer=server.url)], Issuers({server.url: keys}))
    with pytest.raises(Outage):
        people.verify(mint(person | {"iss": server.url}), NOW)
