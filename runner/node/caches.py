"""Finds what keeps a ticket cache by its name: files and directories, or a collection of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.node.place import Place
from runner.node.settings import Settings

if TYPE_CHECKING:
    from runner.node.collection import Collection


def cache(settings: Settings, name: str, uid: int) -> Place | Collection:
    """Give a user's cache by the name that the bridge gave it; raises BadPlace where the node does not allow it."""
    if name.startswith(("KEYRING:", "KCM:")):
        from runner.node.collection import Collection

        return Collection(name, settings.cache_collections, uid)
    return Place(name, settings.cache_directories, uid)
