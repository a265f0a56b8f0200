"""Attack tokens by the table: each is refused, with its own code (T1, T2, T3, T6, T12, T15)."""

from __future__ import annotations

import pytest

from bridge.errors import TokenRefused
from bridge.model import UnverifiedToken
from bridge.oidc.verifier import Verifier
from tests.identity.issuer_vectors import Signer, vectors
from tests.identity.trust import genuine_claims, verifier_of
from tests.unit.oidc.issuer_example import NOW
from tests.unit.oidc.jwk import new_key

KEY = new_key()
SIGNER = Signer(KEY, genuine_claims(NOW))
VECTORS = vectors(SIGNER)
PAYLOAD = SIGNER.token().split(".")[1][:40]


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return verifier_of(KEY.public_key())


def test_the_genuine_token_that_all_vectors_were_made_of_is_accepted(verifier: Verifier) -> None:
    assert verifier.verify(UnverifiedToken(SIGNER.token()), NOW)["user_id"] == "101"


def test_the_table_is_long_and_names_are_unique() -> None:
    names = [name for name, _, _ in VECTORS]
    assert len(names) >= 300
    assert len(set(names)) == len(names)


@pytest.mark.threat("T1")
@pytest.mark.threat("T2")
@pytest.mark.threat("T3")
@pytest.mark.threat("T6")
@pytest.mark.threat("T12")
@pytest.mark.threat("T15")
@pytest.mark.parametrize(("token", "codes"), [row[1:] for row in VECTORS], ids=[ascii(row[0]) for row in VECTORS])
def test_refuses(verifier: Verifier, token: str, codes: set[str]) -> None:
    with pytest.raises(TokenRefused) as caught:
        verifier.verify(UnverifiedToken(token), NOW)
    assert caught.value.code in codes
    shown = f"{caught.value.title}{caught.value.remedy}{dict(caught.value.context)}"
    assert PAYLOAD not in shown
