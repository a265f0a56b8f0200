"""Credential caches that live in this process's memory under names nobody can guess, until their block ends.

MIT's ``MEMORY:`` caches are visible to the whole process by name and live until they are destroyed, so each use makes
one of its own and destroys it (T19). Nothing here reads or sets KRB5CCNAME, and nothing touches a file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import krb5

from bridge.kerberos import ccache
from bridge.kerberos.ccache import Principal


@contextmanager
def private_cache(principal: str, entries: Sequence[bytes] = (), context: krb5.Context | None = None) -> Iterator[str]:
    """Make a cache for a principal, filled with marshalled credentials; gives its name, destroys it at the end.

    The name is what a GSSAPI credential store takes as ``ccache``. context: this thread's, where it has one already.
    Raises krb5.Krb5Error.
    """
    context = context or krb5.init_context()
    with _unguessable(context) as (name, cache):
        krb5.cc_initialize(context, cache, krb5.parse_name_flags(context, principal.encode()))
        for entry in entries:
            krb5.cc_store_cred(context, cache, krb5.unmarshal_credentials(context, entry))
        yield name


class Receiver:
    """A cache that GSSAPI stores a credential into, and what is taken out of it."""

    def __init__(self, name: str, cache: krb5.CCache, context: krb5.Context) -> None:
        self.name: Final = name.encode()
        self._cache = cache
        self._context = context

    def owner(self) -> str:
        """Whose credential was stored, with realm; raises krb5.Krb5Error where nothing was."""
        return str(krb5.cc_get_principal(self._context, self._cache))

    def tickets(self, client: str, servers: Sequence[str]) -> bytes:
        """The tickets ``client -> servers`` in file format version 4.

        What else was stored, such as the bridge's own TGT, does not leave libkrb5. A ticket may be filed under its
        referral realm, which is empty. Nothing is checked here: ``bundle.strip`` does that.
        """
        owner, wanted = Principal.of(client), [list(Principal.of(server).components) for server in servers]
        entries = (
            krb5.marshal_credentials(self._context, entry)
            for entry in self._cache
            if entry.server.components in wanted and _name(entry.client) == owner
        )
        return ccache.assemble(owner, entries)


@contextmanager
def receiving(context: krb5.Context) -> Iterator[Receiver]:
    """Give a cache to receive one credential in."""
    with _unguessable(context) as (name, cache):
        yield Receiver(name, cache, context)


@contextmanager
def _unguessable(context: krb5.Context) -> Iterator[tuple[str, krb5.CCache]]:
    name = f"MEMORY:{secrets.token_hex(16)}"
    cache = krb5.cc_resolve(context, name.encode())
    try:
        yield name, cache
    finally:
        krb5.cc_destroy(context, cache)


def dump(name: str) -> bytes:
    """Give the content of a cache in file format version 4; raises krb5.Krb5Error."""
    context = krb5.init_context()
    cache = krb5.cc_resolve(context, name.encode())
    owner = krb5.cc_get_principal(context, cache)
    entries = (krb5.marshal_credentials(context, entry) for entry in cache)
    return ccache.assemble(Principal.of(str(owner)), entries)


def _name(principal: krb5.Principal) -> Principal:
    return Principal(principal.realm, tuple(principal.components))
