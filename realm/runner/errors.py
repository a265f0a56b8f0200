"""How a stage can fail, in the runner's own classes.

RunnerError
+-- BuildError      the driver ended with BUILD_FAILURE_EXIT_CODE, or the script ran out of its time
+-- SystemFailure   the driver ended with SYSTEM_FAILURE_EXIT_CODE, or the runner itself could not go on
|   +-- UnknownFailure   any other exit code, death by signal, or garbage in BUILD_EXIT_CODE_FILE
+-- JobCanceled     the button was pressed
+-- JobTimeout      the job's time is over
+-- JobAborted      the server does not want the job any more, or the runner is being stopped
"""

SCRIPT_FAILURE = "script_failure"
SYSTEM_FAILURE = "runner_system_failure"
JOB_TIMEOUT = "job_execution_timeout"
UNKNOWN_FAILURE = "unknown_failure"
CONFIGURATION_ERROR = "script_failure"


class RunnerError(Exception):
    """A job or stage that did not succeed; `reason` is the failure_reason that the server gets."""

    reason = UNKNOWN_FAILURE


class BuildError(RunnerError):
    """The user's side failed; never retried in config, prepare and script stages."""

    def __init__(self, text: str, exit_code: int = 1, reason: str = SCRIPT_FAILURE) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.reason = reason


class SystemFailure(RunnerError):
    """The infrastructure failed."""

    reason = SYSTEM_FAILURE


class UnknownFailure(SystemFailure):
    """The driver broke the contract on exit codes."""


class JobCanceled(RunnerError):
    """Canceled by a person."""

    def __init__(self) -> None:
        super().__init__("canceled")


class JobTimeout(RunnerError):
    """The job took longer than its timeout."""

    reason = JOB_TIMEOUT

    def __init__(self, seconds: float) -> None:
        super().__init__(f"execution took longer than {go_duration(seconds)} seconds")


class JobAborted(RunnerError):
    """Nobody waits for this job any more."""

    reason = SYSTEM_FAILURE

    def __init__(self, cause: str = "") -> None:
        super().__init__(f"aborted: {cause}" if cause else "aborted")


def go_duration(seconds: float) -> str:
    """A duration in Go's notation, as the runner's messages have it: 1h0m0s, 2m5s, 1.5s."""
    whole, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(whole), 60)
    tail = f"{rest:g}s"
    if hours:
        return f"{hours}h{minutes}m{tail}"
    return f"{minutes}m{tail}" if minutes else tail
