"""Who may vouch for people is a setting that keeps them and the jobs' GitLabs apart, and the broker works by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from bench import refused
from cryptography.hazmat.primitives.asymmetric import rsa
from web_example import document

from bridge.broker.people_issuers import people_verifier
from bridge.errors import RequestRefused
from bridge.model import UnverifiedToken
from bridge.settings import Settings, parse
from tests.unit.core.bench import KID, Clock
from tests.unit.oidc.jwk import jwk_of

LOGIN = {"url": "https://login.realm.test/auth", "audience": "ci-bridge", "realm": "REALM.TEST"}


def with_people(*tables: dict[str, Any]) -> Settings:
    return parse(document() | {"people_issuers": list(tables)}, Path("bridge.toml"))


def test_without_the_table_nobody_vouches_for_people() -> None:
    assert parse(document(), Path("bridge.toml")).people_issuers == ()


def test_what_is_left_out_is_the_careful_choice() -> None:
    (one,) = with_people(LOGIN).people_issuers
    assert (one.principal_claim, one.required_claims, one.max_auth_age_seconds, one.owns_accounts) == (
        "preferred_username",
        {},
        43200,
        False,
    )


@pytest.mark.threat("T6")
@pytest.mark.parametrize(
    "tables",
    [
        [{"url": "https://gitlab.realm.test"}],
        [{"url": "https://gitlab.realm.test/"}],
        [{}, {}],
        [{}, {"url": "https://login.realm.test/auth/"}],
        [{"url": "http://login.realm.test"}],
        [{"url": "https://login.realm.test?x"}],
        [{"audience": ""}],
        [{"audience": ["a"]}],
        [{"realm": "realm.test"}],
        [{"realm": None}],
        [{"principal_claim": ""}],
        [{"principal_claim": "a b"}],
        [{"required_claims": {"groups": ["hpc"]}}],
        [{"required_claims": {"x": 1.5}}],
        [{"max_auth_age_seconds": -1}],
        [{"client_secret": "x"}],
    ],
    ids=str,
)
def test_a_provider_that_is_not_clear_or_a_gitlab_of_jobs_is_refused(tables: list[dict[str, Any]]) -> None:
    given = [{k: v for k, v in (LOGIN | one).items() if v is not None} for one in tables]
    error = refused(lambda: with_people(*given))
    assert (type(error), error.code) == (RequestRefused, "settings.invalid")


class Silent:
    """``issuers.KeyEvents`` that nobody listens to."""

    def changed(self, issuer: str, thumbprints: Any) -> None:
        """Nothing."""

    def failed(self, issuer: str, reason: str) -> None:
        """Nothing."""


def test_the_broker_verifies_by_what_the_settings_say(tmp_path: Path) -> None:
    key, now = rsa.generate_private_key(public_exponent=65537, key_size=2048), Clock()()
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [jwk_of(key.public_key(), KID)]}))
    more = {"jwks_file": str(file), "principal_claim": "krb", "required_claims": {"mfa": True}, "owns_accounts": True}
    settings = with_people(LOGIN | more | {"max_auth_age_seconds": 0})
    people = people_verifier(settings.people_issuers, Silent())
    issued = int(now.timestamp())
    claims = {"iss": LOGIN["url"], "aud": "ci-bridge", "sub": "1", "iat": issued, "exp": issued + 60, "mfa": True}

    def token(**changes: Any) -> UnverifiedToken:
        return UnverifiedToken(jwt.encode(claims | changes, key, algorithm="RS256", headers={"kid": KID}))

    assert people.verify(token(krb="alice"), now).principal == "alice@REALM.TEST"
    provider = people.provider(LOGIN["url"])
    assert provider is not None
    assert provider.owns_accounts
    assert refused(lambda: people.verify(token(krb="alice", mfa=1), now)).code == "token.claim_required"
    assert refused(lambda: people.verify(token(preferred_username="alice"), now)).code == "token.principal"
