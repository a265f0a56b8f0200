"""What the KDC and libkrb5 answer, as errors of the bridge: a table from error code to refusal, outage or defect.

Source: krb5's error table krb5_err.et (RFC 4120 section 7.5.9 for codes below 128); which code means what in S4U was
measured against MIT 1.20 with kldap.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from bridge.errors import BridgeError, Defect, Outage, PolicyRefused

_Context = dict[str, object]
_Maker = Callable[[str, _Context], BridgeError]

_TABLE_BASE: Final = -1765328384
"""ERROR_TABLE_BASE_krb5; GSSAPI shows the same number as unsigned 32 bits in its minor status."""


class Step(enum.StrEnum):
    """The step of an impersonation that failed; the same code means different things in each."""

    INITIAL = "initial"
    PROTOCOL_TRANSITION = "protocol_transition"
    CONSTRAINED_DELEGATION = "constrained_delegation"


_NAME_EXPIRED: Final = 1
_CLIENT_UNKNOWN: Final = 6
_SERVER_UNKNOWN: Final = 7
_POLICY: Final = 12
_BAD_OPTION: Final = 13
_NO_SUPPORT: Final = 16
_CLIENT_REVOKED: Final = 18
_GENERIC: Final = 60
_NO_PREAUTH: Final = "NO PREAUTH"
"""KRB5KRB_ERR_GENERIC says what it means in words only; these are check_tgs_req's of MIT's KDC (tgs_policy.c)."""
_SKEWED: Final = (32, 33, 37, 148)
"""KRB5KRB_AP_ERR_SKEW and KRB5_KDCREP_SKEW; _TKT_EXPIRED and _TKT_NYV, since our tickets are minutes old at most."""
_NO_KDC: Final = (29, 154, 156, 220)
"""KRB5KDC_ERR_SVC_UNAVAILABLE, KRB5_REALM_UNKNOWN, KRB5_KDC_UNREACH and KRB5_REALM_CANT_RESOLVE."""


def fault(step: Step, minor: int, text: str, account: str, target: str | None = None) -> BridgeError:
    """Give the error to raise for a code of libkrb5 (signed, or unsigned as GSSAPI gives it).

    text: libkrb5's own words, for the audit log only. account: for whom it was.
    """
    code = _offset(minor)
    context: _Context = {"step": step.value, "krb5_code": code, "krb5_text": text, "account": account, "target": target}
    make = _FAULTS.get((step, code)) or _ANY_STEP.get(code) or _UNKNOWN[step]
    if code == _GENERIC and _NO_PREAUTH in text:
        make = _target_preauth
    return make(account, context)


def unreachable(account: str, why: str) -> BridgeError:
    """Give the error for a KDC that did not answer in time."""
    return _kdc_unreachable(account, {"account": account, "why": why})


def is_silence(error: BridgeError) -> bool:
    """Tell whether no KDC said anything, not even no."""
    return error.code == "kerberos.kdc_unreachable"


def may_be_our_ticket(error: BridgeError) -> bool:
    """Tell whether another TGT of the bridge could cure it."""
    return error.code in ("kerberos.failed", "kerberos.clock_skew")


def _offset(minor: int) -> int:
    signed = minor - (1 << 32) if minor >= 1 << 31 else minor
    return signed - _TABLE_BASE


def _client_revoked(account: str, context: _Context) -> BridgeError:
    return PolicyRefused(
        "kerberos.client_revoked",
        f"The Kerberos principal of '{account}' is locked.",
        "Ask the operators of the Kerberos realm why the account is locked.",
        **context,
    )


def _client_expired(account: str, context: _Context) -> BridgeError:
    return PolicyRefused(
        "kerberos.client_expired",
        f"The Kerberos principal of '{account}' has expired.",
        "Ask the operators of the Kerberos realm to extend the account.",
        **context,
    )


def _unknown_principal(account: str, context: _Context) -> BridgeError:
    return PolicyRefused(
        "kerberos.unknown_principal",
        f"The Kerberos realm has no principal for '{account}'.",
        "Check that the mapping names the right account, or have its principal made.",
        **context,
    )


def _not_delegable(account: str, context: _Context) -> BridgeError:
    return PolicyRefused(
        "kerberos.not_delegable",
        f"The KDC does not let the bridge act as '{account}' towards this service.",
        "An operator checks allow_forwardable on the principal and krbAllowedToDelegateTo on the bridge's.",
        **context,
    )


def _unknown_target(_account: str, context: _Context) -> BridgeError:
    return Defect(
        "kerberos.unknown_target",
        "The Kerberos realm does not know a service that the cluster's description lists.",
        "An operator corrects the targets of the cluster or has the service's principal made.",
        **context,
    )


def _target_preauth(_account: str, context: _Context) -> BridgeError:
    return Defect(
        "kerberos.target_preauth",
        "A service of the cluster's description requires pre-authentication, and the bridge's tickets show none.",
        "An operator sets +requires_preauth on the bridge's principal, as setup-delegation does.",
        **context,
    )


def _clock_skew(_account: str, context: _Context) -> BridgeError:
    return Outage(
        "kerberos.clock_skew",
        "The clocks of the bridge and the KDC differ too much.",
        "An operator checks time synchronisation on both; then retry the job.",
        **context,
    )


def _kdc_unreachable(_account: str, context: _Context) -> BridgeError:
    return Outage(
        "kerberos.kdc_unreachable",
        "No KDC of the Kerberos realm answered in time.",
        "Retry the job; if it lasts, tell the operators of the Kerberos realm.",
        **context,
    )


def _bridge_credential(_account: str, context: _Context) -> BridgeError:
    return Outage(
        "kerberos.bridge_credential",
        "The bridge could not get its own Kerberos ticket.",
        "An operator checks the bridge's keytab and its principal at the KDC.",
        **context,
    )


def _failed(_account: str, context: _Context) -> BridgeError:
    return Outage(
        "kerberos.failed",
        "The Kerberos exchange failed for a reason that the bridge does not know.",
        "Retry the job; if it lasts, give the reference to the operators of the bridge.",
        **context,
    )


_FAULTS: Final[dict[tuple[Step, int], _Maker]] = {
    (Step.PROTOCOL_TRANSITION, _NAME_EXPIRED): _client_expired,
    (Step.PROTOCOL_TRANSITION, _CLIENT_UNKNOWN): _unknown_principal,
    (Step.PROTOCOL_TRANSITION, _CLIENT_REVOKED): _client_revoked,
    (Step.PROTOCOL_TRANSITION, _POLICY): _not_delegable,
    (Step.PROTOCOL_TRANSITION, _BAD_OPTION): _not_delegable,
    (Step.CONSTRAINED_DELEGATION, _SERVER_UNKNOWN): _unknown_target,
    (Step.CONSTRAINED_DELEGATION, _POLICY): _not_delegable,
    (Step.CONSTRAINED_DELEGATION, _BAD_OPTION): _not_delegable,
    (Step.CONSTRAINED_DELEGATION, _NO_SUPPORT): _not_delegable,
}

_ANY_STEP: Final[dict[int, _Maker]] = {
    **dict.fromkeys(_NO_KDC, _kdc_unreachable),
    **dict.fromkeys(_SKEWED, _clock_skew),
}

_UNKNOWN: Final[dict[Step, _Maker]] = {
    Step.INITIAL: _bridge_credential,
    Step.PROTOCOL_TRANSITION: _failed,
    Step.CONSTRAINED_DELEGATION: _failed,
}
