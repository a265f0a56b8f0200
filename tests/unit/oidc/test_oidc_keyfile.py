"""Keys from a file: as strict as from the wire, read again when the file changes, and never worse than before."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from issuer_example import ISSUER, KID
from test_oidc_issuers import BAD_SETS, jwk_of

from bridge.errors import Outage, TokenRefused
from bridge.oidc.fetch import MAX_ANSWER_BYTES
from bridge.oidc.keyfile import FileKeys


class Events:
    """What was told."""

    def __init__(self) -> None:
        self.sets: list[set[str]] = []
        self.reasons: list[str] = []

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        """Keep the kids."""
        assert issuer == ISSUER
        self.sets.append(set(thumbprints))

    def failed(self, issuer: str, reason: str) -> None:
        """Keep the reason."""
        assert issuer == ISSUER
        self.reasons.append(reason)


class Place:
    """A key file, and the keys that come out of it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "jwks.json"
        self.events = Events()
        self.keys = FileKeys(ISSUER, self.path, self.events)

    def put(self, *entries: dict[str, Any]) -> None:
        """Replace the file as a careful administrator does."""
        self.put_bytes(json.dumps({"keys": entries}).encode())

    def put_bytes(self, data: bytes) -> None:
        """Replace the file with any bytes."""
        new = self.path.with_suffix(".new")
        new.write_bytes(data)
        new.rename(self.path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty directory for it."""
    return Place(tmp_path)


@pytest.fixture(scope="module")
def good(signing_key: rsa.RSAPrivateKey) -> dict[str, Any]:
    """A key that is taken."""
    return jwk_of(signing_key.public_key())


def test_keys_of_the_file_are_the_issuers(place: Place, good: dict[str, Any], signing_key: rsa.RSAPrivateKey) -> None:
    place.put(good)
    assert place.keys.age_seconds() is None
    for _ in range(3):
        assert place.keys.key(KID).public_numbers() == signing_key.public_key().public_numbers()
    assert (place.events.sets, place.events.reasons, place.keys.age_seconds()) == ([{KID}], [], 0.0)


@pytest.mark.threat("T4")
def test_a_kid_that_is_not_there_is_refused(place: Place, good: dict[str, Any]) -> None:
    place.put(good)
    with pytest.raises(TokenRefused) as caught:
        place.keys.key("other")
    assert caught.value.code == "token.unknown_key"


@pytest.mark.threat("T5")
def test_a_changed_file_is_read_again_and_a_withdrawn_key_dies(
    place: Place, good: dict[str, Any], other_key: rsa.RSAPrivateKey
) -> None:
    place.put(good)
    place.keys.key(KID)
    place.put(jwk_of(other_key.public_key(), "next"))
    place.keys.key("next")
    with pytest.raises(TokenRefused):
        place.keys.key(KID)
    assert place.events.sets == [{KID}, {"next"}]


@pytest.mark.threat("T5")
def test_a_file_of_the_same_size_that_is_written_in_place_is_seen(
    place: Place, good: dict[str, Any], other_key: rsa.RSAPrivateKey
) -> None:
    place.put(good)
    place.keys.key(KID)
    with place.path.open("r+b") as file:
        file.write(json.dumps({"keys": [jwk_of(other_key.public_key())]}).encode())
    os.utime(place.path, ns=(1, 1))
    assert place.keys.key(KID).public_numbers() == other_key.public_key().public_numbers()


@pytest.mark.threat("T4")
@pytest.mark.parametrize("kind", BAD_SETS)
def test_a_bad_file_keeps_the_last_good_set_and_is_reported_once(place: Place, good: dict[str, Any], kind: str) -> None:
    place.put(good)
    before = place.keys.key(KID)
    place.put_bytes(json.dumps(BAD_SETS[kind](good)).encode())
    assert [place.keys.key(KID), place.keys.key(KID)] == [before, before]
    assert len(place.events.reasons) == 1
    assert str(place.path) in place.events.reasons[0]
    assert place.events.sets == [{KID}]


@pytest.mark.parametrize("bad", ["gone", "directory", "fifo", "huge", "empty"])
def test_a_file_that_can_not_be_read_lets_nobody_in_until_it_can(place: Place, good: dict[str, Any], bad: str) -> None:
    if bad == "directory":
        place.path.mkdir()
    elif bad == "fifo":
        os.mkfifo(place.path)
    elif bad != "gone":
        place.put_bytes(b" " * (MAX_ANSWER_BYTES + 1) if bad == "huge" else b"")
    for _ in range(2):
        with pytest.raises(Outage) as caught:
            place.keys.key(KID)
        assert caught.value.code == "issuer.keys_unreadable"
    assert len(place.events.reasons) == 1
    assert place.keys.age_seconds() is None

    if bad == "directory":
        place.path.rmdir()
    place.put(good)
    place.keys.key(KID)
