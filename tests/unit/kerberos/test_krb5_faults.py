"""Codes of the KDC become the bridge's errors by the step in which they come."""

import pytest

from bridge.errors import BridgeError, Defect, Outage, PolicyRefused
from bridge.kerberos.faults import Step, fault, unreachable

BASE = -1765328384

TABLE: list[tuple[Step, int, type[BridgeError], str]] = [
    (Step.PROTOCOL_TRANSITION, 1, PolicyRefused, "kerberos.client_expired"),
    (Step.PROTOCOL_TRANSITION, 6, PolicyRefused, "kerberos.unknown_principal"),
    (Step.PROTOCOL_TRANSITION, 18, PolicyRefused, "kerberos.client_revoked"),
    (Step.PROTOCOL_TRANSITION, 13, PolicyRefused, "kerberos.not_delegable"),
    (Step.CONSTRAINED_DELEGATION, 13, PolicyRefused, "kerberos.not_delegable"),
    (Step.CONSTRAINED_DELEGATION, 12, PolicyRefused, "kerberos.not_delegable"),
    (Step.CONSTRAINED_DELEGATION, 7, Defect, "kerberos.unknown_target"),
    # In the bridge's own exchange nothing is ever the person's fault.
    (Step.INITIAL, 6, Outage, "kerberos.bridge_credential"),
    (Step.INITIAL, 18, Outage, "kerberos.bridge_credential"),
    (Step.INITIAL, 24, Outage, "kerberos.bridge_credential"),
    *((step, 37, Outage, "kerberos.clock_skew") for step in Step),
    *((step, 156, Outage, "kerberos.kdc_unreachable") for step in Step),
    *((step, 29, Outage, "kerberos.kdc_unreachable") for step in Step),
    (Step.PROTOCOL_TRANSITION, 60, Outage, "kerberos.failed"),
    (Step.CONSTRAINED_DELEGATION, 31, Outage, "kerberos.failed"),
    *((step, code, Outage, "kerberos.clock_skew") for step in Step for code in (32, 33)),
]


@pytest.mark.parametrize(("step", "code", "kind", "name"), TABLE)
@pytest.mark.parametrize("unsigned", [False, True])
def test_each_code_has_its_error(step: Step, code: int, kind: type[BridgeError], name: str, *, unsigned: bool) -> None:
    number = BASE + code + ((1 << 32) if unsigned else 0)
    error = fault(step, number, "words of the library", "alice", "host/x@R")
    assert type(error) is kind
    assert error.code == name
    assert error.remedy
    assert error.context["krb5_code"] == code
    assert "words of the library" not in f"{error} {error.title} {error.remedy}"


def test_a_code_of_another_table_is_an_outage() -> None:
    assert fault(Step.PROTOCOL_TRANSITION, 111, "Connection refused", "alice").code == "kerberos.failed"
    assert isinstance(unreachable("alice", "late"), Outage)


@pytest.mark.parametrize(
    ("text", "name"),
    [("KDC returned error string: NO PREAUTH", "kerberos.target_preauth"), ("something else", "kerberos.failed")],
)
def test_a_code_that_says_nothing_is_told_by_its_words(text: str, name: str) -> None:
    assert fault(Step.CONSTRAINED_DELEGATION, BASE + 60, text, "alice", "host/x@R").code == name
