"""Makes a ticket bundle usable as a GSSAPI credential, for the length of a ``with`` block.

The tickets go into a cache in memory, never into a file, and are gone at the end of the block. No KDC is needed to use
them: each service ticket is in the bundle already, and there is no TGT with which to ask for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gssapi
import krb5
from gssapi.raw.misc import GSSError

from bridge.errors import Defect
from bridge.kerberos import ccache, memory
from bridge.model import TicketBundle


@contextmanager
def hold(bundle: TicketBundle) -> Iterator[gssapi.Credentials]:
    """Give the credential of the bundle's principal; raises Defect where its bytes are not what it says.

    A security context that was made with it goes on to work after the block; the credential does not.
    """
    _, entries = ccache.parse(bundle.ccache)
    try:
        with memory.private_cache(bundle.principal, [ccache.write_entry(entry) for entry in entries]) as name:
            yield _credential(name, bundle.principal)
    except krb5.Krb5Error as error:
        raise _unusable(bundle.principal, str(error)) from error


def _credential(name: str, principal: str) -> gssapi.Credentials:
    try:
        held = gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            lifetime=None,
            mechs=[gssapi.MechType.kerberos],
            usage="initiate",
            store={"ccache": name},
        )
    except GSSError as error:
        raise _unusable(principal, error.gen_message()) from error
    if str(held.name) != principal:
        raise _unusable(principal, f"the credential is of {held.name}")
    return held


def _unusable(principal: str, why: str) -> Defect:
    return Defect(
        "kerberos.bundle_unusable",
        "The tickets of a run can't be used.",
        "Retry the job; if it lasts, give the reference to the operators of the bridge.",
        principal=principal,
        why=why,
    )
