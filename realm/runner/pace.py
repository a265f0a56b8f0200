"""The runner's fixed waiting times, which a test or a demo may shorten through the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds; the defaults are GitLab Runner's constants.

    Attributes:
        prepare_retry: between attempts of config and prepare (common.PreparationRetryInterval).
        trace: between trace patches when the server names no interval (common.DefaultUpdateInterval).
        touch: after which a silent job is touched, which is how its cancel is noticed (common.TraceForceSendInterval).
        follow_server: whether X-GitLab-Trace-Update-Interval is obeyed.
        poll: between requests for jobs, or None for config.toml's check_interval.
    """

    prepare_retry: float = 3.0
    trace: float = 3.0
    touch: float = 30.0
    follow_server: bool = True
    poll: float | None = None


def pace_from(environment: Mapping[str, str] = os.environ) -> Pace:
    """Read REALM_RUNNER_PREPARE_RETRY_SECONDS, _TRACE_SECONDS, _TOUCH_SECONDS and _POLL_SECONDS."""

    def seconds(name: str, default: float) -> float:
        return float(environment.get(f"REALM_RUNNER_{name}_SECONDS", default))

    poll = environment.get("REALM_RUNNER_POLL_SECONDS")
    return Pace(
        prepare_retry=seconds("PREPARE_RETRY", Pace.prepare_retry),
        trace=seconds("TRACE", Pace.trace),
        touch=seconds("TOUCH", Pace.touch),
        follow_server="REALM_RUNNER_TRACE_SECONDS" not in environment,
        poll=float(poll) if poll else None,
    )
