"""Checks the clock of the KDC with the bridge's own keytab, where the caller may read it."""

from __future__ import annotations

import os
from pathlib import Path

from bridge.doctor.finding import Finding, failed, not_checked
from bridge.doctor.issuers import clock_finding
from bridge.errors import BridgeError
from bridge.kerberos.clock import kdc_ahead_seconds
from bridge.settings import Broker

CHECK = "kdc-clock"


def check_kdc(broker: Broker) -> Finding:
    """Get a ticket for the bridge and look at its times; not checked as a user who can't read the keytab."""
    if not os.access(broker.keytab, os.R_OK):
        return not_checked(
            CHECK,
            broker.realm,
            f"{broker.keytab} is not readable for this user",
            f"Run ci-bridge doctor as {_owner(broker.keytab)}.",
        )
    try:
        ahead = kdc_ahead_seconds(f"{broker.principal}@{broker.realm}", str(broker.keytab))
    except BridgeError as error:
        text = error.context.get("krb5_text")
        detail = f"{error.title} [{error.code}]" + (f" libkrb5 says: {text}" if text else "")
        return failed(CHECK, broker.realm, detail, error.remedy)
    return clock_finding(CHECK, broker.realm, ahead)


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (OSError, KeyError):
        return "the broker's user, or as root"
