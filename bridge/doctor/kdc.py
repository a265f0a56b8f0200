"""Checks the clock of the KDC with the bridge's own keytab, and says what an error of libkrb5 means as a finding."""

from __future__ import annotations

from pathlib import Path

from bridge.doctor.finding import Finding, failed
from bridge.doctor.issuers import clock_finding
from bridge.errors import BridgeError
from bridge.kerberos.clock import kdc_ahead_seconds

CHECK = "kdc-clock"


def check_clock(principal: str, keytab: str) -> Finding:
    """Get a ticket for the bridge (principal with realm, path of its keytab) and look at its times."""
    realm = principal.rpartition("@")[2]
    try:
        ahead = kdc_ahead_seconds(principal, keytab)
    except BridgeError as error:
        return error_finding(CHECK, realm, error)
    return clock_finding(CHECK, realm, ahead)


def error_finding(check: str, subject: str, error: BridgeError, remedy: str = "") -> Finding:
    """The finding for an error that stopped a check; with libkrb5's own words, which name no key."""
    text = error.context.get("krb5_text")
    detail = f"{error.title} [{error.code}]" + (f" libkrb5 says: {text}" if text else "")
    return failed(check, subject, detail, remedy or error.remedy)


def owner(path: Path) -> str:
    """As whom to run what must read this file."""
    try:
        return path.owner()
    except (OSError, KeyError):
        return "the broker's user, or as root"
