"""The pocket realm is a whole cluster of real daemons on one machine, in namespaces of its own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realm.cluster import Realm
    from realm.errors import RealmError
    from realm.host import Host
    from realm.service import Service

__all__ = ["Host", "Realm", "RealmError", "Service"]

_HOME = {"Realm": "cluster", "RealmError": "errors", "Host": "host", "Service": "service"}


def __getattr__(name: str) -> Any:
    """Import on first use, because PID 1 of a realm imports this package without any third-party library."""
    if name not in _HOME:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"realm.{_HOME[name]}"), name)
