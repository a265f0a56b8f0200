"""Credential caches that live in this process's memory under names nobody can guess, for the length of one call.

MIT's ``MEMORY:`` caches are visible to the whole process by name and live until they are destroyed, so each use makes
one of its own and destroys it (T19). Nothing here reads or sets KRB5CCNAME, and nothing touches a file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import krb5

from bridge.kerberos import ccache
from bridge.kerberos.ccache import Credential, Principal


@contextmanager
def private_cache(principal: str, entries: Sequence[bytes] = ()) -> Iterator[str]:
    """Make a cache for a principal, filled with marshalled credentials; gives its name, destroys it at the end.

    The name is what a GSSAPI credential store takes as ``ccache``. Raises krb5.Krb5Error.
    """
    context = krb5.init_context()
    name = f"MEMORY:{secrets.token_hex(16)}"
    cache = krb5.cc_resolve(context, name.encode())
    try:
        krb5.cc_initialize(context, cache, krb5.parse_name_flags(context, principal.encode()))
        for entry in entries:
            krb5.cc_store_cred(context, cache, krb5.unmarshal_credentials(context, entry))
        yield name
    finally:
        krb5.cc_destroy(context, cache)


def dump(name: str) -> bytes:
    """Give the content of a cache in file format version 4; raises krb5.Krb5Error."""
    context = krb5.init_context()
    cache = krb5.cc_resolve(context, name.encode())
    entries = tuple(_entry(context, entry) for entry in cache)
    owner = krb5.cc_get_principal(context, cache)
    return ccache.write(Principal.of(str(owner)), entries)


def _entry(context: krb5.Context, entry: krb5.Creds) -> Credential:
    return ccache.parse_entry(krb5.marshal_credentials(context, entry))
