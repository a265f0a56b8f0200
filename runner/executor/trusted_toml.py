"""Reads a TOML file that decides about security, and refuses one that others could have written."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping

MAX_CONFIG_BYTES = 64 * 1024


class Untrusted(Exception):
    """The file is missing, not ours, writable by others, too long, not TOML, or has keys or types of its own."""


def read(path: str, schema: Mapping[str, type]) -> dict[str, object]:
    """Read the file at ``path`` (a path) and check it; raises Untrusted.

    ``schema`` names each allowed key and its type. The file must belong to root or to the caller and must not be
    writable by group or others. Checked on the open descriptor, so that a swap of the path changes nothing.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            _check_owner(os.fstat(descriptor), path)
            text = file.read(MAX_CONFIG_BYTES + 1)
        if len(text) > MAX_CONFIG_BYTES:
            raise Untrusted(f"{path} is longer than {MAX_CONFIG_BYTES} bytes")
        values = tomllib.loads(text.decode())
    except OSError as error:
        raise Untrusted(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise Untrusted(f"{path} is not TOML: {error}") from error
    _check_types(values, schema, path)
    return values


def _check_owner(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Untrusted(f"{path} is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise Untrusted(f"{path} belongs to uid {status.st_uid}, not to root or to the caller")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"{path} is writable by others; remove that with chmod go-w")


def _check_types(values: Mapping[str, object], schema: Mapping[str, type], path: str) -> None:
    for key, value in values.items():
        if key not in schema:
            raise Untrusted(f"{path} has an unknown key {key!r}")
        if type(value) is not schema[key]:
            raise Untrusted(f"{path}: {key} must be of type {schema[key].__name__}")
