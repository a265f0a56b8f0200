"""Measures the strict token front against bare PyJWT with the same key, in one run; counts requests that leave.

    .venv/bin/python benchmarks/tokens.py [--json] [--rounds N]

The ratio travels between machines; tokens a second do not. Rounds of both alternate, and the median round counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jwt

from bridge.model import UnverifiedToken
from bridge.oidc.fetch import DISCOVERY_PATH, DiscoveryFetcher
from bridge.oidc.issuers import IssuerKeys, Issuers
from bridge.oidc.verifier import Audience, Verifier
from tests.identity.issuer_vectors import Signer
from tests.identity.trust import MAX_LIFE_SECONDS, genuine_claims
from tests.unit.oidc.https_server import HttpsServer, https_server
from tests.unit.oidc.issuer_example import AUDIENCE, KID, NOW
from tests.unit.oidc.jwk import jwk_of, new_key

KEYS = "/oauth/discovery/keys"
BATCH = 400
AIM = 0.6


class Unheard:
    """Key events that nobody waits for."""

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        """Not of interest here."""

    def failed(self, issuer: str, reason: str) -> None:
        """Make the measurement fail."""
        raise RuntimeError(reason)


def rate(work: Callable[[], object]) -> float:
    """Calls a second, over one batch."""
    began = time.perf_counter()
    for _ in range(BATCH):
        work()
    return BATCH / (time.perf_counter() - began)


def measure(site: HttpsServer, rounds: int) -> dict[str, float | int]:
    """Verify the same token again and again, ours and bare by turns."""
    key = new_key()
    public = key.public_key()
    document = {"issuer": site.url, "jwks_uri": f"{site.url}{KEYS}"}
    site.body(DISCOVERY_PATH, json.dumps(document).encode())
    site.body(KEYS, json.dumps({"keys": [jwk_of(public, KID)]}).encode())
    issuers = Issuers({site.url: IssuerKeys(site.url, DiscoveryFetcher(site.url, site.ca_file), Unheard())})
    verifier = Verifier([Audience(site.url, AUDIENCE, MAX_LIFE_SECONDS)], issuers)
    token = UnverifiedToken(Signer(key, genuine_claims(NOW, iss=site.url)).token())
    options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}

    def ours() -> object:
        return verifier.verify(token, NOW)

    def bare() -> object:
        return jwt.decode(token, public, ["RS256"], audience=AUDIENCE, issuer=site.url, options=options)

    ours(), bare()
    before = len(site.requests)
    pairs = [(rate(ours), rate(bare)) for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "tokens_per_second": round(mine),
        "bare_jwt_decode_per_second": round(theirs),
        "ratio": round(statistics.median(one / other for one, other in pairs), 3),
        "aim": AIM,
        "tokens": rounds * BATCH,
        "outbound_requests": len(site.requests) - before,
        "outbound_requests_before_the_first": before,
    }


def main() -> int:
    """Measure and print; exit code 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=15, help=f"rounds of {BATCH} tokens (default 15)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, https_server(Path(directory)) as site:
        figures = measure(site, options.rounds)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):<36} {value:>10}")
    return 0 if figures["ratio"] >= AIM and figures["outbound_requests"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
