"""Every claim that GitLab puts into an id_token, in exactly one of four tables (GitLab ``lib/gitlab/ci/jwt*.rb``).

REQUIRED and OPTIONAL name the check that a value must pass; UNUSED are known and deliberately not looked at; a claim in
none of them is reported by ``unknown_claims``, so that a change on GitLab's side is noticed on its first day.

GitLab writes ids as decimal strings and booleans as the strings "true" and "false"; only ``runner_id`` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from bridge.model import SignedClaims
from bridge.oidc.refusal import token_refused

Check = Callable[[Any], bool]

_ID: Final = re.compile(r"[1-9][0-9]{0,15}", re.ASCII)
_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_JTI: Final = re.compile(r"[A-Za-z0-9_.:-]{8,128}", re.ASCII)
_MAX_TEXT: Final = 1024


def _text(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= _MAX_TEXT and value.isprintable()


def _matches(pattern: re.Pattern[str]) -> Check:
    def check(value: Any) -> bool:
        return type(value) is str and pattern.fullmatch(value) is not None

    return check


def _number(value: Any) -> bool:
    return type(value) is int and value > 0


def _boolean_text(value: Any) -> bool:
    return type(value) is str and value in ("true", "false")


def _identities(value: Any) -> bool:
    return type(value) is list and all(
        type(item) is dict and _text(item.get("provider")) and _text(item.get("extern_uid")) for item in value
    )


def _texts(value: Any) -> bool:
    return type(value) is list and all(_text(item) for item in value)


def _nullable(check: Check) -> Check:
    return lambda value: value is None or check(value)


_id = _matches(_ID)

REQUIRED: Final[Mapping[str, Check]] = {
    "iss": _text,
    "aud": _text,
    "sub": _text,
    "exp": _number,
    "nbf": _number,
    "iat": _number,
    "jti": _matches(_JTI),
    "namespace_id": _id,
    "project_id": _id,
    "project_path": _text,
    "job_project_id": _id,
    "user_id": _id,
    "user_login": _text,
    "pipeline_id": _id,
    "pipeline_source": _matches(_WORD),
    "job_id": _id,
    "ref": _text,
    "ref_type": _matches(_WORD),
    "ref_protected": _boolean_text,
    "runner_id": _number,
    "runner_environment": _matches(_WORD),
    "sha": _matches(_SHA),
}
"""Without one of these there is no identity. ``sub`` must be there and is never read: a project chooses its form."""

OPTIONAL: Final[Mapping[str, Check]] = {
    "environment": _nullable(_text),
    "environment_protected": _nullable(_boolean_text),
    "deployment_tier": _nullable(_text),
    "job_namespace_id": _id,
    "job_project_path": _text,
    "job_namespace_path": _text,
    "namespace_path": _text,
    "ref_path": _nullable(_text),
    "ci_config_ref_uri": _nullable(_text),
    "ci_config_sha": _nullable(_matches(_SHA)),
    "user_access_level": _nullable(_text),
    "user_identities": _nullable(_identities),
    "groups_direct": _nullable(_texts),
}
"""May be missing; malformed is refused all the same."""

UNUSED: Final = frozenset(
    {
        "user_email",
        "environment_action",
        "project_visibility",
        "job_source",
        "job_config",
        "target_audience",
        "pipeline_source_event",
        "target_ref",
        "target_ref_protected",
    }
)
"""Known, and of no use to a decision here; their values are not looked at."""

KNOWN: Final = frozenset(REQUIRED) | frozenset(OPTIONAL) | UNUSED


def check_claims(claims: Mapping[str, Any]) -> None:
    """Hold every claim against its table; raises TokenRefused ``token.claim_missing`` or ``token.claim_malformed``.

    The refusal names the claim for the audit log, never its value.
    """
    for name, check in REQUIRED.items():
        if name not in claims:
            raise token_refused("claim_missing", f"claim {name} is missing", claim=name)
        if not check(claims[name]):
            raise token_refused("claim_malformed", f"claim {name} is malformed", claim=name)
    for name, check in OPTIONAL.items():
        if name in claims and not check(claims[name]):
            raise token_refused("claim_malformed", f"claim {name} is malformed", claim=name)


def unknown_claims(claims: SignedClaims) -> tuple[str, ...]:
    """The names, sorted, of claims that are in none of the tables: to be reported, not refused."""
    return tuple(sorted(claims.keys() - KNOWN))
