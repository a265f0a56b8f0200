"""Long forms of tests that look for what happens once in a million times: ``scripts/soak tickets --minutes 30``."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time

from realm import Realm
from tests.soak.tickets import Figures, Soak, crowd, for_minutes

PEOPLE, THREADS, CONTEXTS_EACH = 200, 64, 20


def tickets(minutes: float, seed: int, every_seconds: float) -> dict[str, object]:
    """Run against a KDC of its own; prints progress to stderr, returns the figures."""
    with Realm(parts=("kdc",)) as realm, crowd(realm, PEOPLE) as people:
        os.environ["KRB5_CONFIG"] = str(realm.krb5_conf)
        os.environ.pop("KRB5CCNAME", None)
        soak, over, began = Soak(realm, people, CONTEXTS_EACH, seed), threading.Event(), time.monotonic()
        reporter = threading.Thread(target=_report, args=(soak.figures, over, began, every_seconds))
        reporter.start()
        try:
            figures = soak.run(THREADS, for_minutes(minutes))
        finally:
            over.set()
            reporter.join()
    return _shown(figures) | {"seed": seed, "seconds": round(time.monotonic() - began), "threads": THREADS}


def _report(figures: Figures, over: threading.Event, began: float, every_seconds: float) -> None:
    while not over.wait(every_seconds):
        seconds = time.monotonic() - began
        print(
            f"soak: {seconds:5.0f} s  {figures.contexts} contexts, {figures.bundles} bundles, "
            f"{figures.refused} refused, {figures.cancelled} cancelled, {len(figures.wrong)} wrong",
            file=sys.stderr,
            flush=True,
        )


def _shown(figures: Figures) -> dict[str, object]:
    return {
        "contexts": figures.contexts,
        "bundles": figures.bundles,
        "refused": figures.refused,
        "cancelled": figures.cancelled,
        "people": len(figures.people),
        "wrong": figures.wrong,
        "broken": figures.broken,
    }


def main() -> int:
    """Exit code 1 where one context was somebody else's, or a thread died."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tickets"])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--every", type=float, default=10, metavar="SECONDS", help="progress (default 10)")
    options = parser.parse_args()
    figures = tickets(options.minutes, options.seed, options.every)
    print(json.dumps(figures, indent=2))
    return 1 if figures["wrong"] or figures["broken"] or not figures["contexts"] else 0


if __name__ == "__main__":
    sys.exit(main())
