"""The names that may appear in a ticket request: which accounts, which services, and which never.

The first of three walls: ``guard`` looks at the account behind the name, and the third stands at the KDC
(``-allow_forwardable`` on what must never be impersonated, ``krbAllowedToDelegateTo`` for the services). Pure: no
look-ups, no I/O.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from bridge.errors import PolicyRefused, RequestRefused

_ACCOUNT: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_SERVICE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_REALM: Final = re.compile(r"[A-Z0-9]([A-Z0-9.-]{0,252}[A-Z0-9])?", re.ASCII)
_MAX_HOST: Final = 253

_REMEMBERED: Final = 1024
"""How many names keep their answer, which depends on nothing else; refusals are found anew each time."""

_SYSTEM_ACCOUNTS: Final = (
    *("root", "toor", "admin", "administrator", "operator", "daemon", "bin", "sys", "sync", "mail", "news", "uucp"),
    *("proxy", "backup", "list", "irc", "nobody", "nogroup", "sshd", "munge", "slurm", "slurmrestd", "mysql"),
    *("postgres", "ldap", "openldap", "systemd", "messagebus", "polkitd", "gitlab-runner", "ci-bridge"),
)
"""Superusers and daemons as distributions name them; the floor of uids is checked where uids are known."""

_SERVICE_NAMES: Final = (
    *("host", "http", "nfs", "cifs", "ftp", "imap", "pop", "smtp", "krbtgt", "kadmin", "kiprop", "kdc", "changepw"),
    *("anonymous", "wellknown"),
)
"""First components of service principals, and the KDC's own."""

NEVER_IMPERSONATED: Final = frozenset(_SYSTEM_ACCOUNTS + _SERVICE_NAMES)
"""Account names that no policy can open."""

_NEVER_PREFIXES: Final = ("lustre_", "systemd-", "_")
"""``lustre_root`` without a host part is uid 0 for lsvcgssd, from any node."""

_NEVER_SERVICES: Final = frozenset({"krbtgt", "kadmin", "kiprop", "changepw", "k", "wellknown"})


@lru_cache(_REMEMBERED)
def account_principal(account: str, realm: str) -> str:
    """Give ``account@REALM`` for an account name that may be impersonated.

    Raises RequestRefused ``kerberos.account_malformed`` for what is not a POSIX account name (useradd(8):
    ``[a-z_][a-z0-9_-]*``, 32 bytes), PolicyRefused ``kerberos.account_denied``.
    """
    if not _ACCOUNT.fullmatch(account):
        raise RequestRefused(
            "kerberos.account_malformed",
            "The account does not have the form of a cluster account name.",
            "Correct the mapping: lower-case letters, digits, '_' and '-', at most 32 characters.",
            account=repr(account)[:100],
        )
    if account in NEVER_IMPERSONATED or account.startswith(_NEVER_PREFIXES):
        raise account_denied(account, "its name is one that is never impersonated")
    return f"{account}@{checked_realm(realm)}"


def account_denied(account: str, why: str) -> PolicyRefused:
    """Give the refusal of an account that CI jobs never run as; ``why`` is for the audit log only."""
    return PolicyRefused(
        "kerberos.account_denied",
        f"CI jobs never run as '{account}'.",
        "Map the person to an ordinary account of their own.",
        account=account,
        why=why,
    )


@lru_cache(_REMEMBERED)
def target_principal(target: str, realm: str) -> str:
    """Give ``service/host@REALM`` for a target such as ``lustre_mds/mds1.example``; raises RequestRefused."""
    service, slash, host = target.partition("/")
    labels = host.split(".")
    formed = slash and _SERVICE.fullmatch(service) and len(host) <= _MAX_HOST and all(map(_LABEL.fullmatch, labels))
    if not formed or service.lower() in _NEVER_SERVICES:
        raise RequestRefused(
            "kerberos.target_malformed",
            "A service that tickets were asked for does not have the form service/host, or is the KDC's own.",
            "Correct the cluster's list of targets.",
            target=repr(target)[:300],
        )
    return f"{target}@{checked_realm(realm)}"


def checked_realm(realm: str) -> str:
    """Give the realm back if it is one that we can write without escapes; raises RequestRefused."""
    if not _REALM.fullmatch(realm):
        raise RequestRefused(
            "kerberos.realm_malformed",
            "The cluster's Kerberos realm is not an upper-case domain name.",
            "Correct the realm in the cluster's description.",
            realm=repr(realm)[:300],
        )
    return realm
