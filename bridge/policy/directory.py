"""Looks accounts up in the system's name service (nsswitch.conf(5)), each time anew."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Protocol

from bridge.errors import Outage, PolicyRefused
from bridge.model import PosixAccount


class Directory(Protocol):
    """Knows the accounts of the cluster as they are at this moment."""

    def lookup(self, name: str) -> PosixAccount:
        """The account ``name``; raises PolicyRefused ``account.unknown``, Outage ``directory.unreachable``."""
        ...


class NssDirectory:
    """The directory that this host's NSS shows: passwd files, sssd, nslcd; keeps nothing between two calls."""

    def lookup(self, name: str) -> PosixAccount:
        """The account with all its groups; a group without a name makes the answer an outage, never a shorter list."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError as error:
            raise account_unknown(name) from error
        except (OSError, ValueError) as error:
            raise _unreachable(name, error) from error
        return PosixAccount(
            name=entry.pw_name,
            uid=entry.pw_uid,
            gid=entry.pw_gid,
            groups=_groups(entry.pw_name, entry.pw_gid),
            home=entry.pw_dir,
            shell=entry.pw_shell or "/bin/sh",
        )


def _groups(name: str, gid: int) -> tuple[str, ...]:
    try:
        ids = os.getgrouplist(name, gid)
        return tuple(grp.getgrgid(one).gr_name for one in [gid, *(other for other in ids if other != gid)])
    except (KeyError, OSError) as error:
        # A missing group may be the denied one.
        raise _unreachable(name, error) from error


def account_unknown(name: str) -> PolicyRefused:
    """The refusal for an account that the directory does not have under exactly this name."""
    return PolicyRefused(
        "account.unknown",
        f"The account {name} that your GitLab user is linked to does not exist on this cluster.",
        "Ask the cluster's administrators to correct the link or to create the account.",
        account=name,
    )


def _unreachable(name: str, error: Exception) -> Outage:
    return Outage(
        "directory.unreachable",
        "The cluster's directory of accounts could not be asked.",
        "Run the job again in a few minutes; administrators: check getent passwd and getent group on the bridge.",
        account=name,
        reason=type(error).__name__,
    )
