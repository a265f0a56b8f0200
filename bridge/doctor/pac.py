"""Reads from a ticket how old the KDC is, where the HTTP service's keytab is at hand (T26).

A ticket of a KDC from MIT 1.20 on, or a patched Active Directory, has a PAC with a signature over the whole ticket
([MS-PAC] 2.8.3, ``16``): without it a service could change evidence tickets ("Bronze Bit", CVE-2020-17049). The full
checksum (2.8.4, ``19``) came with MIT 1.21 and the Windows updates for CVE-2022-37967. A release number is nowhere in
the protocol.
"""

from __future__ import annotations

import os
from pathlib import Path

from bridge.doctor.finding import Finding, failed, not_checked, ok
from bridge.doctor.kdc import error_finding, owner
from bridge.doctor.site import Site
from bridge.errors import BridgeError
from bridge.kerberos.probe import Probe

CHECK = "kdc-release"

_TICKET_SIGNATURE = "16"
_FULL_CHECKSUM = "19"
_UPDATE = "Update the KDC: MIT krb5 1.20 or newer with current patches (not 1.22.0), or Windows with its updates"


def check_pac(site: Site, probe: Probe) -> Finding:
    """Judge the PAC of a ticket from the bridge to its own HTTP service."""
    if not os.access(site.http_keytab, os.R_OK):
        return not_checked(
            CHECK,
            site.realm,
            f"{site.http_keytab} is not readable for this user",
            f"Run ci-bridge doctor as {owner(Path(site.http_keytab))}.",
        )
    try:
        parts = probe.pac_buffers(site.http_service, site.http_keytab)
    except BridgeError as error:
        return error_finding(
            CHECK, site.http_service, error, "Write the HTTP service's keytab anew: its keys are stale."
        )
    if not parts:
        return failed(CHECK, site.realm, "tickets have no PAC", f"{_UPDATE}; disable_pac must not be set in kdc.conf.")
    if _TICKET_SIGNATURE not in parts:
        return failed(CHECK, site.realm, "the KDC does not sign whole tickets (CVE-2020-17049)", f"{_UPDATE}.")
    if _FULL_CHECKSUM in parts:
        return ok(CHECK, site.realm, "signs tickets and has the full PAC checksum: MIT 1.21 or newer, or a patched AD")
    return ok(CHECK, site.realm, "signs tickets: MIT 1.20 or newer")
