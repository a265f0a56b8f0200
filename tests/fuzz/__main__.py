"""What ``scripts/fuzz`` runs: forged tokens against the verifier for as long as one likes, then the tally.

With atheris installed, libFuzzer leads the way by coverage of the verifier and of PyJWT; else it goes by chance.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_ROUND = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; exit code 1, with the forgery, when one is taken or breaks something."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tokens"], help="what to fuzz")
    parser.add_argument("--minutes", type=float, default=1.0, help="for how long (default 1)")
    parser.add_argument("--seed", type=int, default=None, help="where to begin; the report has it")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    run = _guided if importlib.util.find_spec("atheris") else _by_chance
    return run(first, options.minutes * 60, options.json)


def _by_chance(first: int, seconds: float, as_json: bool) -> int:
    """Round after round, each from a seed of its own."""
    from hypothesis import seed

    campaign = importlib.import_module("tests.fuzz.campaign").Campaign()
    end = time.monotonic() + seconds
    number, failure = first, None
    while failure is None and time.monotonic() < end:
        try:
            seed(number)(_attack(campaign))()
        except AssertionError as error:
            failure = str(error)
        number += 1
    return _report(campaign, "hypothesis", first, failure, as_json)


def _guided(first: int, seconds: float, as_json: bool) -> int:
    """Bytes from libFuzzer, tokens made of them by hypothesis; ends this process, for libFuzzer knows no other end."""
    import atheris  # type: ignore[import-not-found, unused-ignore]

    with atheris.instrument_imports(include=["bridge", "jwt"]):
        campaign = importlib.import_module("tests.fuzz.campaign").Campaign()
    present = _attack(campaign).hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    end = time.monotonic() + seconds

    def one(data: bytes) -> None:
        failure = None
        try:
            present(data)
        except AssertionError as error:
            failure = str(error)
        if failure is not None or time.monotonic() >= end:
            code = _report(campaign, "atheris", first, failure, as_json)
            sys.stdout.flush()
            os._exit(code)

    atheris.Setup([sys.argv[0], f"-seed={first or 1}", "-max_len=65536", "-verbosity=0", "-print_final_stats=0"], one)
    atheris.Fuzz()
    return 1


def _attack(campaign: Any) -> Callable[[], None]:
    from hypothesis import HealthCheck, Phase, given, settings

    @settings(
        max_examples=_ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(campaign.forger.tokens())
    def attack(token: str) -> None:
        campaign.present(token)

    return attack


def _report(campaign: Any, engine: str, first: int, failure: str | None, as_json: bool) -> int:
    document = {
        "ok": failure is None,
        "engine": engine,
        "seed": first,
        "tokens": campaign.tokens,
        "codes": dict(campaign.codes.most_common()),
        "slowest_milliseconds": round(campaign.slowest_seconds * 1000, 2),
        "largest_kib": campaign.largest_bytes // 1024,
        "failure": failure,
    }
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        for code, count in campaign.codes.most_common():
            print(f"{count:>10}  {code}")
        print(
            f"{campaign.tokens} tokens by {engine} from seed {first}, none accepted; "
            f"at most {document['slowest_milliseconds']} ms and {document['largest_kib']} KiB for one"
            if failure is None
            else f"FAILED after {campaign.tokens} tokens by {engine} from seed {first}: {failure}"
        )
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
