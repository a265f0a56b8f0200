"""One process that presents the tokens of many jobs to a ledger, with job tokens of its own: nobody's retry.

Arguments: the database's URL, the name of this process, the number of jobs. Prints ``JOB accepted`` or ``JOB CODE``.
"""

from __future__ import annotations

import hashlib
import sys

from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError, Outage
from tests.unit.db.ledger_example import NOW, identity, intent, opening


def main(url: str, name: str, jobs: int) -> None:
    """Present each job's token until there is an answer; an outage is none."""
    ledger = SqlLedger(open_database(url), Writer.new(f"broker-{name}"), lambda: NOW)
    mine = hashlib.sha256(name.encode()).digest()
    for job_id in range(1, jobs + 1):
        print(job_id, present(ledger, job_id, mine), flush=True)


def present(ledger: SqlLedger, job_id: int, job_token_hash: bytes) -> str:
    """Return what became of one presentation."""
    who = identity(job_id)
    while True:
        try:
            with ledger.begin() as tx:
                opened = tx.open_run(opening(who, job_token_hash=job_token_hash))
                tx.append(intent(who, run_id=opened.run_id))
        except Outage:
            continue
        except BridgeError as error:
            return error.code
        return "accepted"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
