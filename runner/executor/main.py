"""Entry of the custom executor: ``ci-bridge-executor [--config FILE] config|prepare|run SCRIPT STAGE|cleanup``.

GitLab Runner starts one process for each call, so this file imports nothing that a call without work needs; everything
else is imported once it is known that there is something to do (``posix.environ`` instead of ``os.environ`` for that).
"""

import posix
import sys

DEFAULT_CONFIG = "/etc/ci-bridge/executor.toml"

USAGE = "usage: ci-bridge-executor [--config FILE] config | prepare | run SCRIPT STAGE | cleanup"

_OPERANDS = {"config": 0, "prepare": 0, "run": 2, "cleanup": 0}
"""How many operands GitLab Runner gives to each call."""

USAGE_EXIT = 2
"""Exit code where GitLab Runner's own two codes can't be known; it counts as a failure of the system there."""


def main() -> int:
    """Perform the call that the command line names; returns the process's exit code."""
    arguments = sys.argv[1:]
    config = DEFAULT_CONFIG
    if len(arguments) >= 2 and arguments[0] == "--config":
        config = arguments[1]
        del arguments[:2]
    verb, operands = (arguments[0], arguments[1:]) if arguments else ("", [])
    if len(operands) != _OPERANDS.get(verb, -1):
        print(USAGE, file=sys.stderr)
        return USAGE_EXIT
    if verb == "cleanup" and b"CI_BRIDGE_RUN" not in posix.environ:
        return 0
    from runner.executor.calls import perform

    return perform(verb, operands, config)
