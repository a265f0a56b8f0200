"""One process that presents tokens to a ledger as fast as it can, for tests of races between processes.

Arguments: the database's URL, a letter that tells this process's job tokens from the others', the number of jobs.
Prints one line for each job: ``accepted RUN`` or the refusal's code.
"""

import sys

from ledger_example import NOW, identity, intent, opening

from bridge.audit.log import Writer
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError


def main(url: str, letter: str, jobs: int) -> None:
    """Wait for a line on standard input, so that all processes begin together."""
    ledger = SqlLedger(open_database(url), Writer.new(f"broker-{letter}"), lambda: NOW)
    print("ready", flush=True)
    sys.stdin.readline()
    for job_id in range(1, jobs + 1):
        who = identity(job_id)
        try:
            with ledger.begin() as tx:
                opened = tx.open_run(opening(who, job_token_hash=letter.encode() * 32))
                tx.append(intent(who, run_id=opened.run_id))
            print(f"accepted {opened.run_id}", flush=True)
        except BridgeError as error:
            print(error.code, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
