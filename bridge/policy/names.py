"""The grammar of names that end up in principals, paths and command lines: plain ASCII that can mean nothing else."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, StringConstraints

ACCOUNT_PATTERN: Final = r"^[a-z_][a-z0-9_-]{0,31}$"
"""Names of posix accounts and groups (useradd(8)): no ``/``, ``@``, ``\\``, leading ``-`` or look-alikes."""

AccountName = Annotated[str, StringConstraints(pattern=ACCOUNT_PATTERN)]
RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
"""Names of limits, clusters and policies."""
SlurmName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""Names of partitions, qos and Slurm accounts."""
HostName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))+$")]
"""A fully qualified host name in lower case."""
RealmName = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9]([A-Z0-9.-]{0,126}[A-Z0-9])?$")]
ServiceName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}/[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))+$"),
]
"""``service/host`` without realm."""

FsName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,8}$")]
"""A Lustre file system (mkfs.lustre(8), --fsname)."""
Nid = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:_-]{1,253}@[a-z0-9]{1,16}$")]
"""A Lustre network id, e.g. ``10.0.0.1@tcp`` (lctl(8))."""


def _absolute(path: str) -> str:
    if not path.startswith("/") or path != "/" + "/".join(part for part in path.split("/") if part):
        raise ValueError("not an absolute path in its shortest spelling")
    if any(part in (".", "..") for part in path.split("/")) or not path.isascii() or not path.isprintable():
        raise ValueError("not a plain absolute path")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
CacheName = Annotated[str, StringConstraints(pattern=r"^FILE:/[A-Za-z0-9_./-]*%\{uid\}[A-Za-z0-9_.-]*$")]
"""A ccache name of type FILE with ``%{uid}`` in it (MIT krb5, parameter expansion of default_ccache_name)."""


_COLLECTIONS: Final = ("KEYRING:persistent:%{uid}", "KCM:%{uid}")


def _node_cache(name: str) -> str:
    if name in _COLLECTIONS:
        return name
    kind, colon, path = name.partition(":")
    if not colon or kind not in ("FILE", "DIR"):
        raise ValueError(
            f"a cache on compute nodes is of type FILE or DIR, or {' or '.join(_COLLECTIONS)}, in which the node agent "
            "itself names the cache; it writes none of another type"
        )
    if "%{uid}" not in path or "%" in path.replace("%{uid}", ""):
        raise ValueError("the cache's name must have %{uid} in it, and no other parameter")
    last = path.rpartition("/")[2]
    if not last.startswith("krb5cc") or (last != "krb5cc" and not last.endswith("_%{uid}")):
        raise ValueError("the last part of the cache's name is krb5cc, or begins with krb5cc_ and ends in _%{uid}")
    _absolute(path)
    return name


NodeCacheName = Annotated[str, AfterValidator(_node_cache)]
"""A ccache name for compute nodes, which ``runner.node.caches`` accepts: ``FILE:/tmp/krb5cc_%{uid}``, ``DIR:...``, or
a collection of the user's."""
