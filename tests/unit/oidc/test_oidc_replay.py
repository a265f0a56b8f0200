"""Which second presentation of a token is the runner's retry, and which is a replay (T7)."""

import pytest

from bridge.errors import TokenRefused
from bridge.model import RunId
from bridge.oidc.replay import MAX_ATTEMPTS, Presented, Used, holds_user_code, next_attempt

HASH = b"h" * 32
SHOWN = Presented("jti-00001", 301, HASH)


def used(
    jti: str = "jti-00001", job_id: int = 301, job_token_hash: bytes = HASH, attempt: int = 1, submitted: bool = False
) -> Used:
    """An earlier use that today's presentation may be a retry of."""
    return Used(RunId("r" * 26), jti, job_id, job_token_hash, attempt, submitted)


def test_a_fresh_token_begins_the_first_attempt() -> None:
    assert next_attempt(SHOWN, None) == 1


def test_the_runners_retries_count_up_to_the_limit() -> None:
    assert [next_attempt(SHOWN, used(attempt=number)) for number in range(1, MAX_ATTEMPTS)] == [2, 3, 4]


@pytest.mark.threat("T7")
@pytest.mark.parametrize(
    "earlier",
    [
        pytest.param(used(job_token_hash=b"x" * 32), id="another job token"),
        pytest.param(used(job_token_hash=b""), id="no job token"),
        pytest.param(used(job_id=302), id="another job"),
        pytest.param(used(jti="jti-00002"), id="another token of the same job"),
        pytest.param(used(submitted=True), id="after the user's code"),
        pytest.param(used(attempt=MAX_ATTEMPTS), id="too many attempts"),
    ],
)
def test_anything_else_is_a_replay(earlier: Used) -> None:
    with pytest.raises(TokenRefused) as caught:
        next_attempt(SHOWN, earlier)
    assert caught.value.code == "token.replayed"


@pytest.mark.parametrize(
    ("stage", "user_code"),
    [
        ("build_script", True),
        ("step_script", True),
        ("step_release", True),
        ("after_script", True),
        ("prepare", False),
        ("prepare_script", False),
        ("get_sources", False),
        ("restore_cache", False),
        ("download_artifacts", False),
        ("upload_artifacts_on_failure", False),
    ],
)
def test_knows_the_stages_that_hold_user_code(stage: str, user_code: bool) -> None:
    assert holds_user_code(stage) is user_code
