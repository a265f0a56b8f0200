"""Keys under load: rotated, withdrawn, unreachable, flooded with unknown names; the issuer is really on the wire (T5).

Time is the test's own; requests are counted where they arrive. A fetch is two of them: discovery, then the key set.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.errors import BridgeError
from bridge.model import UnverifiedToken
from bridge.oidc.fetch import DISCOVERY_PATH, DiscoveryFetcher
from bridge.oidc.issuers import HARD_SECONDS, SOFT_SECONDS, UNKNOWN_KID_SECONDS, IssuerKeys, Issuers
from bridge.oidc.verifier import Audience, Verifier
from tests.identity.issuer_vectors import HEADER, Signer
from tests.identity.trust import MAX_LIFE_SECONDS, genuine_claims
from tests.unit.oidc.https_server import HttpsServer, https_server
from tests.unit.oidc.issuer_example import AUDIENCE, NOW
from tests.unit.oidc.jwk import jwk_of, new_key

KEYS = "/oauth/discovery/keys"
THREADS = 8
OLD, NEW = new_key(), new_key()


@dataclass(frozen=True)
class Seen:
    """One presentation: the clock before and after, and what came of it."""

    before: float
    after: float
    code: str
    """``ok``, or the code of the refusal."""


class Site:
    """An issuer on the wire, the bridge's view of it, and the clock of both."""

    def __init__(self, server: HttpsServer) -> None:
        self.server = server
        self.now = 1000.0
        self.events: list[str] = []
        self.mend()
        self.publish({"old": OLD})
        fetcher = DiscoveryFetcher(server.url, server.ca_file)
        keys = IssuerKeys(server.url, fetcher, self, lambda: self.now)
        self.verifier = Verifier([Audience(server.url, AUDIENCE, MAX_LIFE_SECONDS)], Issuers({server.url: keys}))

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        self.events.append("+".join(sorted(thumbprints)))

    def failed(self, issuer: str, reason: str) -> None:
        self.events.append("failed")

    @property
    def fetches(self) -> int:
        return sum(path == DISCOVERY_PATH for path, _ in self.server.requests)

    def publish(self, keys: Mapping[str, rsa.RSAPrivateKey]) -> None:
        entries = [jwk_of(key.public_key(), kid) for kid, key in keys.items()]
        self.server.body(KEYS, json.dumps({"keys": entries}).encode())

    def break_down(self) -> None:
        self.server.body(DISCOVERY_PATH, b"", 503)

    def mend(self) -> None:
        document = {"issuer": self.server.url, "jwks_uri": f"{self.server.url}{KEYS}"}
        self.server.body(DISCOVERY_PATH, json.dumps(document).encode())

    def token(self, kid: str, key: rsa.RSAPrivateKey) -> UnverifiedToken:
        signer = Signer(key, genuine_claims(NOW, iss=self.server.url))
        return UnverifiedToken(signer.token(HEADER | {"kid": kid}))

    def present(self, token: UnverifiedToken) -> Seen:
        before = self.now
        try:
            self.verifier.verify(token, NOW)
            code = "ok"
        except BridgeError as error:
            code = error.code
        return Seen(before, self.now, code)

    def flood(self, tokens: list[UnverifiedToken]) -> list[Seen]:
        """Present all of them, many at a time."""
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self.present, tokens))

    def while_under_load(self, token: UnverifiedToken, act: Callable[[], None]) -> list[Seen]:
        """Present the token again and again from many threads while ``act`` runs; what came of each."""
        seen: list[Seen] = []
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                seen.append(self.present(token))

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            act()
        finally:
            done.set()
            for thread in threads:
                thread.join(30)
        return seen


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with https_server(tmp_path) as server:
        yield Site(server)


def codes(seen: list[Seen]) -> set[str]:
    return {one.code for one in seen}


def until(condition: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + 20, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.005)


@pytest.mark.threat("T5")
@pytest.mark.threat("T38")
def test_no_request_leaves_the_bridge_for_a_token(site: Site) -> None:
    token = site.token("old", OLD)
    assert codes(site.flood([token] * 2000)) == {"ok"}
    assert [path for path, _ in site.server.requests] == [DISCOVERY_PATH, KEYS]


@pytest.mark.threat("T5")
def test_a_rotation_under_load_refuses_nobody_and_costs_one_fetch(site: Site) -> None:
    old, new = site.token("old", OLD), site.token("new", NEW)
    answers: list[Seen] = []

    def rotate() -> None:
        until(lambda: site.events == ["old"])
        site.publish({"old": OLD, "new": NEW})
        answers.extend(site.flood([new, old] * 200))

    assert codes(site.while_under_load(old, rotate)) == {"ok"}
    assert codes(answers) == {"ok"}
    assert site.fetches == 2
    assert site.events == ["old", "new+old"]


@pytest.mark.threat("T5")
def test_a_rotation_right_after_a_refresh_is_seen_at_once_too(site: Site) -> None:
    old, new = site.token("old", OLD), site.token("new", NEW)
    assert codes(site.flood([old])) == {"ok"}
    site.now += SOFT_SECONDS
    assert codes(site.flood([old] * 50)) == {"ok"}
    site.publish({"old": OLD, "new": NEW})
    assert codes(site.flood([new] * 50)) == {"ok"}
    assert site.fetches == 3


@pytest.mark.threat("T5")
def test_a_withdrawn_key_opens_nothing_after_the_next_fetch_and_the_others_go_on(site: Site) -> None:
    site.publish({"old": OLD, "new": NEW})
    old, new = site.token("old", OLD), site.token("new", NEW)
    assert codes(site.flood([old, new])) == {"ok"}
    site.publish({"new": NEW})

    def withdraw() -> None:
        site.now += SOFT_SECONDS
        until(lambda: site.fetches == 2 and site.events[-1] == "new")

    assert codes(site.while_under_load(new, withdraw)) == {"ok"}
    assert codes(site.flood([old] * 200)) == {"token.unknown_key"}
    assert codes(site.flood([new] * 200)) == {"ok"}
    assert site.fetches == 3, "the withdrawn key's name is an unknown one now, and worth one look"


@pytest.mark.threat("T5")
def test_an_issuer_that_is_down_is_bridged_to_the_hard_age_and_not_a_second_longer(site: Site) -> None:
    token = site.token("old", OLD)
    assert codes(site.flood([token])) == {"ok"}
    fetched_at = site.now
    site.break_down()

    def pass_time() -> None:
        pause = threading.Event()
        while site.now < fetched_at + HARD_SECONDS + 300:
            site.now += 10
            pause.wait(0.002)

    seen = site.while_under_load(token, pass_time)
    assert codes(seen) == {"ok", "issuer.keys_too_old"}
    assert [one for one in seen if one.code == "ok" and one.before - fetched_at >= HARD_SECONDS] == []
    assert [one for one in seen if one.code != "ok" and one.after - fetched_at < HARD_SECONDS] == []
    assert site.fetches <= 2 + (HARD_SECONDS + 300) / 5
    site.now += 60
    site.mend()
    assert codes(site.flood([token] * 50)) == {"ok"}


@pytest.mark.threat("T5")
def test_a_new_key_that_could_not_be_fetched_is_an_outage_and_no_refusal(site: Site) -> None:
    new = site.token("new", NEW)
    assert codes(site.flood([site.token("old", OLD)])) == {"ok"}
    site.publish({"old": OLD, "new": NEW})
    site.break_down()
    assert codes(site.flood([new] * 50)) == {"issuer.keys_unconfirmed"}
    site.mend()
    site.now += UNKNOWN_KID_SECONDS
    assert codes(site.flood([new] * 50)) == {"ok"}


@pytest.mark.threat("T5")
@pytest.mark.threat("T38")
def test_a_flood_of_unknown_kids_costs_two_fetches_a_minute_and_harms_nobody(site: Site) -> None:
    genuine = site.token("old", OLD)
    assert codes(site.flood([genuine])) == {"ok"}
    before = site.fetches
    strangers = [site.token(f"kid-{number}", NEW) for number in range(600)]

    def attack() -> None:
        for number in range(60):
            assert codes(site.flood(strangers[number * 10 : number * 10 + 10])) == {"token.unknown_key"}
            site.now += 1

    assert codes(site.while_under_load(genuine, attack)) == {"ok"}
    assert site.fetches - before <= 2
